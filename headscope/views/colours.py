"""How head types are drawn: a colour, a letter, a mark and a class of style for each."""

from __future__ import annotations

from collections.abc import Iterable

from headscope.evidence.tags import UNCLASSIFIED
from headscope.relations import head_types

OTHER = "#8a6fdf"
"""Types that are not registered, such as those of relations that were given by hand."""
QUIET = "#f0f0f3"


def colour(type_name: str) -> str:
    """The colour of a type; a pale one for no type."""
    known = head_types().get(type_name)
    return QUIET if type_name == UNCLASSIFIED else known.colour if known else OTHER


def letter(type_name: str) -> str:
    """The letter of a type, for where there is no colour; `·` for no type."""
    known = head_types().get(type_name)
    return "·" if type_name == UNCLASSIFIED else known.letter if known else type_name[0].upper()


def ink(type_name: str) -> str:
    """Black or white, whichever can be read on the type's colour (WCAG's relative luminance)."""
    red, green, blue = (int(colour(type_name)[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < DARK else "black"


DARK = 0.5


def in_order(names: Iterable[str]) -> list[str]:
    """Types in the order of the table, then those that it has not, by name; no type last."""
    found = set(names)
    known = [name for name in head_types() if name in found]
    last = [UNCLASSIFIED] if UNCLASSIFIED in found else []
    return [*known, *sorted(found - {*known, UNCLASSIFIED}), *last]


def type_class(type_name: str) -> str:
    """The style's class of a type; those that the table has not share one."""
    return type_name if type_name in head_types() or type_name == UNCLASSIFIED else "other"


def type_style() -> str:
    """The style sheet's rules that give each type its colour."""
    colours = {name: each.colour for name, each in head_types().items()} | {"other": OTHER}
    return "\n".join(f".type-{name} {{ --type: {value}; }}" for name, value in colours.items())
