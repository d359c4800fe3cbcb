"""One colour for each head type, told apart by colour-blind readers too (Okabe and Ito 2008)."""

from __future__ import annotations

COLOURS = {
    "positional": "#0072b2",
    "delimiter": "#56b4e9",
    "induction": "#d55e00",
    "syntactic": "#009e73",
    "coreference": "#cc79a7",
    "semantic": "#e69f00",
}
LETTERS = {
    "positional": "P",
    "delimiter": "D",
    "induction": "I",
    "syntactic": "S",
    "coreference": "C",
    "semantic": "M",
}
OTHER = "#8a6fdf"
QUIET = "#f0f0f3"


def colour(type_name: str) -> str:
    """The colour of a type; one for all types of a user's own, a pale one for no type."""
    return QUIET if type_name == "unclassified" else COLOURS.get(type_name, OTHER)


def letter(type_name: str) -> str:
    """The letter of a type, for where there is no colour; `·` for no type."""
    return "·" if type_name == "unclassified" else LETTERS.get(type_name, type_name[0].upper())
