"""Word lists of controlled English, for sentences and prompts.

A closed list of common words, so that a model can be built by hand over them; words in their
order and words of a kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def pick(rng: np.random.Generator, words: Sequence[str]) -> str:
    """One of the words, each as likely."""
    return words[int(rng.integers(len(words)))]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


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
