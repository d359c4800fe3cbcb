"""How head types are drawn: a colour, a letter, a mark and a class of style for each."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from headscope.evidence.result import Result
from headscope.evidence.tags import UNCLASSIFIED, UNIDENTIFIABLE
from headscope.evidence.undecided import undecided
from headscope.relations import head_types

OTHER = "#8a6fdf"
"""Types that are not registered, such as those of relations that were given by hand."""
QUIET = "#f0f0f3"
NO_TYPE = {UNIDENTIFIABLE: "?", UNCLASSIFIED: "·"}
"""What heads are drawn as that have no type, with their letters."""
LABELS = {UNIDENTIFIABLE: "cannot be told apart here"}
"""What a legend calls them, where that is not their name."""


def marks(run: Result) -> pd.Series:
    """What each head is drawn as: its primary type, or one of `NO_TYPE`."""
    primary = run.heads["primary"].copy()
    primary[undecided(run.heads, run.evidence).index] = UNIDENTIFIABLE
    return primary


def is_resting(type_name: str) -> bool:
    """Whether a type is a resting place and no function; such heads are drawn faintly."""
    known = head_types().get(type_name)
    return known is not None and not known.functional


def legend_groups(names: Iterable[str]) -> dict[str, list[str]]:
    """What is drawn, in groups with their titles: types, resting places, and no type."""
    found = in_order(names)
    resting = [name for name in found if is_resting(name)]
    none = [name for name in found if name in NO_TYPE]
    types = [name for name in found if name not in {*resting, *none}]
    groups = {"looks at": types, "rests": resting, "no tag": none}
    return {title: own for title, own in groups.items() if own}


def colour(type_name: str) -> str:
    """The colour of a type; a pale one for no type."""
    known = head_types().get(type_name)
    return QUIET if type_name in NO_TYPE else known.colour if known else OTHER


def letter(type_name: str) -> str:
    """The letter of a type, for where there is no colour; `·` for no type."""
    known = head_types().get(type_name)
    return NO_TYPE.get(type_name) or (known.letter if known else type_name[0].upper())


def ink(type_name: str) -> str:
    """Black or white, whichever can be read on the type's colour (WCAG's relative luminance)."""
    red, green, blue = (int(colour(type_name)[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < DARK else "black"


DARK = 0.5


def in_order(names: Iterable[str]) -> list[str]:
    """Types in the order of the table, then those that it has not, by name; no type last."""
    found = set(names)
    known = [name for name in head_types() if name in found]
    last = [name for name in NO_TYPE if name in found]
    return [*known, *sorted(found - {*known, *last}), *last]


def type_class(type_name: str) -> str:
    """The style's class of a type; those that the table has not share one."""
    if type_name == UNIDENTIFIABLE:
        return "undecided"
    return type_name if type_name in head_types() or type_name == UNCLASSIFIED else "other"


def type_style() -> str:
    """The style sheet's rules that give each type its colour."""
    colours = {name: each.colour for name, each in head_types().items()} | {"other": OTHER}
    return "\n".join(f".type-{name} {{ --type: {value}; }}" for name, value in colours.items())
