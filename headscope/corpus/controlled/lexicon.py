"""The words of controlled English.

A closed list of common words, so that a model can be built by hand over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pick(rng: np.random.Generator, words: Sequence[str]) -> str:
    """One of the words, each as likely."""
    return words[int(rng.integers(len(words)))]


def _words(text: str) -> list[str]:
    return text.split()


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
MATERIALS = _words("stone wood glass iron silver copper leather paper brass clay")

ADJECTIVES = _words(
    "old young small large heavy light broken clean dirty dark bright quiet new strange green red "
    "white blue round long short thin warm cold pretty plain cheap famous tired lonely cheerful "
    "honest brave proud gentle clever"
)
OF_THINGS = frozenset(
    _words(
        "small large heavy light broken clean dirty dark bright new strange green red white blue "
        "round long short thin warm cold plain cheap old"
    )
)
OF_PEOPLE = frozenset(
    _words(
        "old young small quiet strange famous tired lonely cheerful honest brave proud gentle "
        "clever pretty short"
    )
)

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
GIVING = _words(
    "give/gives/gave/given show/shows/showed/shown send/sends/sent/sent lend/lends/lent/lent "
    "offer/offers/offered/offered"
)
PLANNING = _words(
    "try/tries/tried/tried promise/promises/promised/promised hope/hopes/hoped/hoped "
    "refuse/refuses/refused/refused decide/decides/decided/decided"
)
SAYING = _words(
    "say/says/said/said think/thinks/thought/thought believe/believes/believed/believed "
    "know/knows/knew/known"
)

HOW_OFTEN = _words("often always never soon still rarely")
MANNERS = _words("quickly quietly carefully gladly slowly")
TIMES = _words("yesterday today later once afterwards sometimes")
NEAR = _words("near behind beside below opposite")
NUMBERS = _words("two three four five six seven ten twelve")
MODALS = _words("will can must should may could would might")

WORDS = frozenset(
    part
    for deck in (
        WOMEN, MEN, FEMALE, MALE, PEOPLE, THINGS, PLACES, MATERIALS, ADJECTIVES, ON_THINGS,
        ON_PEOPLE, GIVING, PLANNING, SAYING, HOW_OFTEN, MANNERS, TIMES, NEAR, NUMBERS, MODALS,
    )
    for entry in deck
    for part in entry.split("/")
)  # fmt: skip
"""Every content word in every form."""

SHE = {"nominative": "she", "accusative": "her", "possessive": "her"}
HE = {"nominative": "he", "accusative": "him", "possessive": "his"}
IT = {"nominative": "it", "accusative": "it", "possessive": "its"}
THEY = {"nominative": "they", "accusative": "them", "possessive": "their"}
PRONOUNS = {"fs": SHE, "ms": HE, "ns": IT, "p": THEY}
