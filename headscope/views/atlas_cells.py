"""Cells and legend of the atlas as data, for figures, pages and the terminal."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from headscope.heads import head_name
from headscope.statistics.columns import BELOW_BASELINE, PRELIMINARY
from headscope.statistics.in_words import CAUTIONS, has_caution, marked_tag
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, UNIDENTIFIABLE
from headscope.views.colours import is_sink_type, letter

STAR = "*"
"""Sign of a head whose primary tag is preliminary."""
OUTLINE = "outline"
"""Sign of a head below its baseline in a picture."""

_FAINT, _FULL = 0.2, 0.75
"""Shares of its type's colour that a head with a lift of 0 and of 1 has."""
_SINK_SHARE = 0.4
"""The same of attention sinks: darker than no type, paler than any type."""


@dataclass(frozen=True)
class AtlasCell:
    """A head in an atlas, as a figure, a page and the terminal draw it."""

    layer: int
    head: int
    type: str
    """The primary type."""
    letter: str
    """The letter of the type, followed by a star if the tag is preliminary."""
    share: float
    """Share of the type's colour in the cell, in [0, 1]; the rest is white."""
    is_open: bool
    """True if the text does not separate the head's relation from a baseline."""
    is_below_baseline: bool
    """True if its hit rate is below that of the baseline."""
    title: str
    """The name, tags with their cautions, and the lift."""


def atlas_cells(run: Result) -> list[AtlasCell]:
    """All heads of a run, layer by layer."""
    cells = []
    for row in run.heads.sort_values(["layer", "head"]).to_dict("records"):
        # the letter has room for one sign, and the title for all cautions of all tags
        primary = str(row["primary"])
        star = STAR if has_caution(row, PRELIMINARY) else ""
        tags = [marked_tag(row, name) for name in str(row["tags"]).split(";") if name]
        name = head_name(row["layer"], row["head"])
        cells.append(
            AtlasCell(
                layer=int(row["layer"]),
                head=int(row["head"]),
                type=primary,
                letter=letter(primary) + star,
                share=colour_share(primary, float(row["lift"])),
                is_open=primary == UNIDENTIFIABLE,
                is_below_baseline=has_caution(row, BELOW_BASELINE),
                title=f"{name}: {', '.join(tags) or primary}, lift {row['lift']:.2f}",
            )
        )
    return cells


def colour_share(type_name: str, lift: float) -> float:
    """Share of a type's colour in the cell of a head: the larger the lift, the more.

    >>> colour_share("induction", 1.0), colour_share("sink", 1.0), colour_share("unclassified", 0.0)
    (0.75, 0.4, 1.0)
    """
    if type_name in NO_TYPE:
        return 1.0
    if is_sink_type(type_name):
        return _SINK_SHARE
    return _FAINT + (_FULL - _FAINT) * min(1.0, max(0.0, lift))


def caution_signs(heads: pd.DataFrame, below_sign: str = OUTLINE) -> dict[str, str]:
    """The sign of each caution in an atlas with its word and number of heads, by column.

    Args:
        heads: a row per head; cautions that the primary tag of no head has are left out.
        below_sign: the sign of heads below their baseline.
    """
    sign_of_column = {PRELIMINARY: STAR, BELOW_BASELINE: below_sign}
    rows = heads.to_dict("records")
    signs = {}
    for column, (word, _) in CAUTIONS.items():
        count = sum(has_caution(row, column) for row in rows)
        if count:
            signs[column] = f"{sign_of_column[column]}: {word} ({count})"
    return signs


def caution_legend(heads: pd.DataFrame, below_sign: str = OUTLINE) -> list[str]:
    """The lines of `caution_signs`, each with what the word means."""
    signs = caution_signs(heads, below_sign)
    return [f"{sign}: {CAUTIONS[column][1]}" for column, sign in signs.items()]


def meanings(heads: pd.DataFrame) -> list[str]:
    """Each word that a tag of these heads has, with what it means."""
    lines = []
    for column, (word, meaning) in CAUTIONS.items():
        if (heads[column] != "").any():
            lines.append(f"{word}: {meaning}")
    return lines
