"""Words in their order, words of a kind and pairs of forms, for prompts that ask for one."""

from __future__ import annotations

from typing import NamedTuple


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple((a, b) for a, b in (pair.split("/") for pair in text.split()))


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


class Property(NamedTuple):
    """Something that a person has, a paraphrase that asks for it, and what it may be."""

    predicate: str
    """What is said of the person, with a place for the value."""
    question: str
    """Ends in a word that stands nowhere before: nothing follows it there to be repeated."""
    cue: str
    """The word of the question that tells it from those for other properties."""
    values: tuple[str, ...]


PROPERTIES = (
    Property(
        "lives in {}",
        "The city where {} has a home is",
        "city",
        _words("Paris London Rome Berlin Madrid Vienna Moscow Tokyo Boston Chicago Dublin Athens"),
    ),
    Property(
        "teaches {}",
        "The subject that {} knows best is",
        "subject",
        _words("music history physics biology chemistry art law medicine English French"),
    ),
    Property(
        "likes {}",
        "The colour that {} would choose is",
        "colour",
        _words("red blue green yellow purple orange black white brown pink"),
    ),
    Property(
        "drinks {}",
        "What stands in the glass of {} is",
        "glass",
        _words("water milk wine beer tea coffee juice"),
    ),
    Property(
        "trades with {}",
        "The land to which {} sends goods is",
        "land",
        _words("France Spain Italy Germany China Japan India Russia Canada Mexico Brazil Egypt"),
    ),
)
TWO_PROPERTIES = (
    "{name} {first} and {second}.",
    "{name}, who {first}, {second}.",
    "{name} {first}. {pronoun} also {second}.",
    "{name} {first}, and at times {second}.",
)
"""Forms of what is said of a person: values stand at several distances from the name, in one
sentence with it or in the next."""
VALUES = tuple(dict.fromkeys(word for row in PROPERTIES for word in row.values))

INDIRECT_OBJECT_TEMPLATES = (
    "When {0} and {1} went to the {2}, {3} gave the {4} to",
    "After {0} and {1} had seen the {2}, {3} handed the {4} to",
    "While {0} and {1} were near the {2}, {3} showed the {4} to",
    "Before {0} and {1} left the {2}, {3} brought the {4} to",
)
"""Prompts of indirect objects, after Wang et al. 2022: two names, one of which comes again."""

CAPITALS = _pairs(
    "France/Paris England/London Italy/Rome Germany/Berlin Spain/Madrid Austria/Vienna "
    "Russia/Moscow Japan/Tokyo Ireland/Dublin Greece/Athens Egypt/Cairo China/Beijing "
    "Poland/Warsaw Norway/Oslo Sweden/Stockholm Portugal/Lisbon Cuba/Havana Iran/Tehran "
    "Iraq/Baghdad Kenya/Nairobi Peru/Lima Hungary/Budapest Finland/Helsinki Turkey/Ankara"
)
PAST = _pairs(
    "go/went take/took see/saw give/gave come/came make/made find/found think/thought know/knew "
    "say/said tell/told write/wrote speak/spoke bring/brought buy/bought fall/fell feel/felt "
    "hold/held keep/kept leave/left lose/lost meet/met run/ran sell/sold send/sent sit/sat "
    "sleep/slept stand/stood teach/taught win/won begin/began break/broke choose/chose draw/drew "
    "drive/drove eat/ate fly/flew grow/grew throw/threw wear/wore"
)
COMPARATIVE = _pairs(
    "big/bigger small/smaller tall/taller short/shorter long/longer fast/faster slow/slower "
    "old/older young/younger high/higher low/lower strong/stronger weak/weaker warm/warmer "
    "cold/colder light/lighter dark/darker hard/harder soft/softer deep/deeper wide/wider "
    "rich/richer poor/poorer cheap/cheaper clean/cleaner thick/thicker thin/thinner close/closer "
    "great/greater late/later"
)
ANTONYMS = _pairs(
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
