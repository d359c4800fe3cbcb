"""Marks of tags that need caution, the same in every table and picture of heads."""

from __future__ import annotations

import pandas as pd

from headscope.statistics.columns import BELOW_BASELINE, PRELIMINARY, REPLICATES
from headscope.statistics.in_words import CAUTIONS, HeadRow, has_caution
from headscope.statistics.tags import NO_TYPE
from headscope.views.colours import letter

STAR = "*"
"""Sign of a head whose primary tag is preliminary."""
OUTLINE = "outline"
"""Sign of a head below its baseline in a picture."""
UNCERTAIN = 0.5
"""Probability of a tag on another text below which an atlas marks it."""


def is_uncertain(row: HeadRow) -> bool:
    """True if another text of the same size gives the primary tag less often than not."""
    has_tag = row["primary"] not in NO_TYPE
    return bool(has_tag and row[REPLICATES] < UNCERTAIN)


def head_letter(row: HeadRow) -> str:
    """The letter of a head's primary type, followed by a star if that tag is preliminary."""
    star = STAR if has_caution(row, PRELIMINARY) else ""
    return letter(str(row["primary"])) + star


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
