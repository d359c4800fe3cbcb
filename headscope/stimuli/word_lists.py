"""Word lists of controlled English, for sentences, prompts and tasks.

A closed list of common words, so that a model can be built by hand over them; words in their
order, words of a kind and pairs of forms.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pick(rng: np.random.Generator, words: Sequence[str]) -> str:
    """One of the words, each as likely."""
    return words[int(rng.integers(len(words)))]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _rows(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row.split("/")) for row in text.split())


DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = _words(
    "January February March April May June July August September October November December"
)
NUMBERS = _words(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty"
)
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = tuple(map(str, range(1, 41)))
YEARS = tuple(map(str, range(1950, 2021)))
IN_ORDER = {
    "days": DAYS,
    "months": MONTHS,
    "numbers": NUMBERS,
    "letters": LETTERS,
    "digits": DIGITS,
    "years": YEARS,
}
"""The lists of Gould et al. 2023 that are single words."""
CYCLIC = ("days", "months")

INDIRECT_OBJECT_TEMPLATES = (
    "When {0} and {1} went to the {2}, {3} gave the {4} to",
    "After {0} and {1} had seen the {2}, {3} handed the {4} to",
    "While {0} and {1} were near the {2}, {3} showed the {4} to",
    "Before {0} and {1} left the {2}, {3} brought the {4} to",
)
"""Prompts of indirect objects, after Wang et al. 2022: two names, one of which comes again."""

ADJECTIVES = _rows(
    "big/bigger/biggest small/smaller/smallest tall/taller/tallest short/shorter/shortest "
    "long/longer/longest fast/faster/fastest slow/slower/slowest old/older/oldest "
    "young/younger/youngest high/higher/highest low/lower/lowest strong/stronger/strongest "
    "weak/weaker/weakest warm/warmer/warmest cold/colder/coldest light/lighter/lightest "
    "dark/darker/darkest hard/harder/hardest soft/softer/softest deep/deeper/deepest "
    "wide/wider/widest rich/richer/richest poor/poorer/poorest cheap/cheaper/cheapest "
    "clean/cleaner/cleanest thick/thicker/thickest thin/thinner/thinnest close/closer/closest "
    "great/greater/greatest late/later/latest early/earlier/earliest easy/easier/easiest "
    "happy/happier/happiest heavy/heavier/heaviest large/larger/largest near/nearer/nearest "
    "new/newer/newest safe/safer/safest simple/simpler/simplest smart/smarter/smartest "
    "broad/broader/broadest tight/tighter/tightest bright/brighter/brightest "
    "few/fewer/fewest fine/finer/finest hot/hotter/hottest loud/louder/loudest "
    "nice/nicer/nicest quick/quicker/quickest steep/steeper/steepest tough/tougher/toughest "
    "good/better/best bad/worse/worst"
)
"""Each with its comparative and its superlative."""
VERBS = _rows(
    "go/went/going take/took/taking see/saw/seeing give/gave/giving come/came/coming "
    "make/made/making find/found/finding think/thought/thinking know/knew/knowing "
    "say/said/saying tell/told/telling write/wrote/writing speak/spoke/speaking "
    "bring/brought/bringing buy/bought/buying fall/fell/falling feel/felt/feeling "
    "hold/held/holding keep/kept/keeping leave/left/leaving lose/lost/losing meet/met/meeting "
    "run/ran/running sell/sold/selling send/sent/sending sit/sat/sitting sleep/slept/sleeping "
    "stand/stood/standing teach/taught/teaching win/won/winning begin/began/beginning "
    "break/broke/breaking choose/chose/choosing draw/drew/drawing drive/drove/driving "
    "eat/ate/eating fly/flew/flying grow/grew/growing throw/threw/throwing wear/wore/wearing "
    "ask/asked/asking call/called/calling help/helped/helping look/looked/looking "
    "move/moved/moving open/opened/opening play/played/playing start/started/starting "
    "turn/turned/turning use/used/using walk/walked/walking want/wanted/wanting "
    "work/worked/working build/synthetic/building pay/paid/paying lead/led/leading"
)
"""Each with its past tense and its -ing form."""
COUNTRIES = _rows(
    "France/Paris/French England/London/English Italy/Rome/Italian Germany/Berlin/German "
    "Spain/Madrid/Spanish Austria/Vienna/Austrian Russia/Moscow/Russian Japan/Tokyo/Japanese "
    "Ireland/Dublin/Irish Greece/Athens/Greek Egypt/Cairo/Egyptian China/Beijing/Chinese "
    "Poland/Warsaw/Polish Norway/Oslo/Norwegian Sweden/Stockholm/Swedish "
    "Portugal/Lisbon/Portuguese Cuba/Havana/Cuban Iran/Tehran/Iranian Iraq/Baghdad/Iraqi "
    "Kenya/Nairobi/Kenyan Peru/Lima/Peruvian Hungary/Budapest/Hungarian "
    "Finland/Helsinki/Finnish Turkey/Ankara/Turkish Syria/Damascus/Syrian "
    "Lebanon/Beirut/Lebanese Afghanistan/Kabul/Afghan Denmark/Copenhagen/Danish "
    "Belgium/Brussels/Belgian Canada/Ottawa/Canadian "
    "Australia/Canberra/Australian Vietnam/Hanoi/Vietnamese Thailand/Bangkok/Thai "
    " Jordan/Amman/Jordanian Romania/Bucharest/Romanian "
    "Serbia/Belgrade/Serbian Scotland/Edinburgh/Scottish Wales/Cardiff/Welsh"
)
"""Each with its capital and its people or language."""
CAPITALS, PAST, COMPARATIVE = (
    tuple(row[:2] for row in rows) for rows in (COUNTRIES[:24], VERBS[:40], ADJECTIVES[:30])
)
"""Pairs that prompts ask for; the rows after these are for questions to weights alone."""
ANTONYMS = _rows(
    "hot/cold big/small tall/short fast/slow old/new high/low strong/weak light/dark hard/soft "
    "deep/shallow wide/narrow rich/poor clean/dirty thick/thin happy/sad good/bad early/late "
    "open/closed full/empty loud/quiet heavy/light dry/wet true/false right/wrong near/far "
    "first/last black/white up/down inside/outside alive/dead"
)
RELATED = {
    "antonym": ("The opposite of {0} is", ANTONYMS),
    "capital": ("The capital of {0} is", CAPITALS),
    "past": ("Today they {0}, and yesterday they", PAST),
    "comparative": ("This one is {0}, but that one is even", COMPARATIVE),
}
"""Relations between words, each with a prompt that asks for the second of a pair."""


WOMEN = _words(
    "Anna Mary Sarah Emma Alice Lucy Clara Julia Laura Helen Nora Ruth Grace Jane Kate Susan Lily "
    "Martha Rachel Sophie"
)
MEN = _words(
    "John Peter Paul Thomas David Henry Robert George James Daniel Simon Martin Frank Oscar Hugo "
    "Arthur Edward Walter Adam Victor"
)

# singular/plural: whom "she" and "he" can mean
FEMALE = _words(
    "woman/women girl/girls queen/queens aunt/aunts mother/mothers sister/sisters "
    "daughter/daughters wife/wives lady/ladies princess/princesses widow/widows niece/nieces "
    "grandmother/grandmothers waitress/waitresses actress/actresses nun/nuns bride/brides"
)
MALE = _words(
    "man/men boy/boys king/kings uncle/uncles father/fathers brother/brothers son/sons "
    "husband/husbands gentleman/gentlemen prince/princes grandfather/grandfathers nephew/nephews "
    "waiter/waiters actor/actors monk/monks groom/grooms policeman/policemen"
)
PEOPLE = _words(
    "doctor/doctors teacher/teachers farmer/farmers soldier/soldiers artist/artists baker/bakers "
    "lawyer/lawyers sailor/sailors student/students writer/writers driver/drivers nurse/nurses "
    "judge/judges guard/guards painter/painters singer/singers tailor/tailors captain/captains "
    "hunter/hunters clerk/clerks friend/friends neighbour/neighbours guest/guests child/children "
    "cook/cooks gardener/gardeners"
)
THINGS = _words(
    "key/keys letter/letters box/boxes lamp/lamps basket/baskets cup/cups coat/coats ring/rings "
    "boat/boats map/maps ladder/ladders bottle/bottles clock/clocks knife/knives shelf/shelves "
    "chair/chairs table/tables door/doors window/windows picture/pictures book/books cart/carts "
    "rope/ropes bell/bells blanket/blankets plate/plates bag/bags hat/hats shoe/shoes wheel/wheels "
    "drum/drums violin/violins mirror/mirrors candle/candles hammer/hammers stone/stones "
    "flag/flags carpet/carpets pipe/pipes bucket/buckets"
)
PLACES = _words(
    "bridge/bridges market/markets harbour/harbours village/villages station/stations "
    "garden/gardens church/churches river/rivers wall/walls tower/towers mill/mills barn/barns "
    "school/schools kitchen/kitchens road/roads forest/forests hill/hills castle/castles "
    "shop/shops stable/stables"
)
NOUNS = tuple(tuple(entry.split("/")) for entry in (*PEOPLE, *THINGS, *PLACES, *FEMALE, *MALE))
"""Each with its plural."""
GENDERS = _rows(
    "man/woman boy/girl king/queen uncle/aunt father/mother brother/sister son/daughter "
    "husband/wife prince/princess grandfather/grandmother nephew/niece waiter/waitress "
    "actor/actress he/she him/her himself/herself men/women boys/girls brothers/sisters "
    "sons/daughters male/female gentleman/lady fathers/mothers kings/queens dad/mom guy/girl"
)
"""Each male word with the female one."""
# base/third person/past/participle
ON_THINGS = _words(
    "open/opens/opened/opened carry/carries/carried/carried find/finds/found/found "
    "paint/paints/painted/painted clean/cleans/cleaned/cleaned buy/buys/bought/bought "
    "sell/sells/sold/sold hide/hides/hid/hidden lose/loses/lost/lost take/takes/took/taken "
    "repair/repairs/repaired/repaired keep/keeps/kept/kept break/breaks/broke/broken "
    "see/sees/saw/seen need/needs/needed/needed want/wants/wanted/wanted hold/holds/held/held "
    "bring/brings/brought/brought move/moves/moved/moved steal/steals/stole/stolen"
)
ON_PEOPLE = _words(
    "admire/admires/admired/admired help/helps/helped/helped meet/meets/met/met "
    "visit/visits/visited/visited follow/follows/followed/followed call/calls/called/called "
    "thank/thanks/thanked/thanked trust/trusts/trusted/trusted watch/watches/watched/watched "
    "know/knows/knew/known love/loves/loved/loved fear/fears/feared/feared "
    "remember/remembers/remembered/remembered praise/praises/praised/praised"
)
NEAR = _words("near behind beside below opposite")
