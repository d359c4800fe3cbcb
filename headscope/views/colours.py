"""Styles of head types: a colour, a letter, a mark and a class of style for each."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.relations import head_types
from headscope.statistics.tags import NO_TYPE, UNCLASSIFIED, UNIDENTIFIABLE

OTHER = "#8a6fdf"
"""Colour of types that are not registered, such as those of relations given by hand."""
QUIET = "#f0f0f3"
_LETTERS = {UNIDENTIFIABLE: "?", UNCLASSIFIED: "·"}
"""Letters of heads that have no type."""


def is_sink_type(type_name: str) -> bool:
    """True for an attention sink, which is drawn faintly."""
    known = head_types().get(type_name)
    return known is not None and not known.functional


def legend_groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Groups of the legend with their titles: types, attention sinks, and no type."""
    groups: dict[str, list[str]] = {"attends to": [], "attention sink": [], "no tag": []}
    for name in types_in_order(names):
        if name in NO_TYPE:
            groups["no tag"].append(name)
        elif is_sink_type(name):
            groups["attention sink"].append(name)
        else:
            groups["attends to"].append(name)
    return {title: members for title, members in groups.items() if members}


def colour(type_name: str) -> str:
    """The colour of a type; a pale one for no type."""
    if type_name in NO_TYPE:
        return QUIET
    head_type = head_types().get(type_name)
    return head_type.colour if head_type else OTHER


def letter(type_name: str) -> str:
    """The letter of a type, for output without colour; `·` for no type."""
    if type_name in _LETTERS:
        return _LETTERS[type_name]
    head_type = head_types().get(type_name)
    return head_type.letter if head_type else type_name[0].upper()


def types_in_order(names: Iterable[str]) -> list[str]:
    """Types in the order of the table, then those that it has not, by name; no type last."""
    present = set(names)
    known = [name for name in head_types() if name in present]
    untyped = [name for name in NO_TYPE if name in present]
    others = present - {*known, *untyped}
    return [*known, *sorted(others), *untyped]


def type_class(type_name: str) -> str:
    """The style's class of a type; those that the table has not share one."""
    if type_name == UNIDENTIFIABLE:
        return "undecided"
    return type_name if type_name in head_types() or type_name == UNCLASSIFIED else "other"


def type_style() -> str:
    """The style sheet's rules that give each type its colour."""
    colours = {name: head_type.colour for name, head_type in head_types().items()}
    colours["other"] = OTHER
    rules = [f".type-{name} {{ --type: {value}; }}" for name, value in colours.items()]
    return "\n".join(rules)
