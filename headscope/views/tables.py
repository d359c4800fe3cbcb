"""Tables for the terminal: without lines, numbers right, and no text cut off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pandas as pd
from rich.table import Table

NUMBERS = frozenset({"mass", "control", "lift", "n", "heads", "with the tag"})
"""Columns that stand right in every table."""


def plain_table(
    *columns: str,
    right: Collection[str] = (),
    unwrapped: Collection[str] = ("head",),
    widths: Mapping[str, int] | None = None,
) -> Table:
    """An empty table with these columns; what is too long for its column goes on below.

    Args:
        columns: their titles, from left to right; those of `widths` when none is named.
        right: those that hold numbers, beside `NUMBERS`.
        unwrapped: those whose text is never broken.
        widths: the most characters of a column.

    >>> [column.justify for column in plain_table("head", "mass", "p", right=("p",)).columns]
    ['left', 'right', 'right']
    """
    table = Table(box=None, pad_edge=False, header_style="dim")
    widths = widths or {}
    for column in columns or widths:
        table.add_column(
            column,
            justify="right" if column in NUMBERS or column in right else "left",
            no_wrap=column in unwrapped,
            overflow="fold",
            max_width=widths.get(column),
        )
    return table


def rows_table(
    rows: pd.DataFrame,
    columns: Mapping[str, Callable[[Any], str]],
    *,
    right: Collection[str] = (),
    unwrapped: Collection[str] = ("head",),
) -> Table:
    """A table with a line per row of a DataFrame.

    Args:
        rows: as `itertuples` gives them.
        columns: the text of a row's cell by the column's title; see `plain_table` for the rest.
        right: those that hold numbers, beside `NUMBERS`.
        unwrapped: those whose text is never broken.

    >>> rows = pd.DataFrame({"layer": [0, 1], "n": [3, 4]})
    >>> table = rows_table(rows, {"layer": lambda row: str(row.layer), "n": lambda row: f"{row.n}"})
    >>> list(table.columns[1].cells)
    ['3', '4']
    """
    table = plain_table(*columns, right=right, unwrapped=unwrapped)
    for row in rows.itertuples():
        table.add_row(*(cell(row) for cell in columns.values()))
    return table


def number_text(value: Any, form: str, missing: str = "") -> str:
    """A number of a table for a cell, and what stands there where it is missing.

    pandas hands whole numbers and fractions out, and NaN, NA or None for what is missing.

    >>> number_text(0.5, ".2f"), number_text(float("nan"), ".2f", "–")
    ('0.50', '–')
    """
    return missing if pd.isna(value) else format(value, form)


def interval_text(low: Any, high: Any, form: str, missing: str = "") -> str:
    """An interval for a cell, likewise.

    >>> interval_text(0.25, 0.5, ".2f")
    '0.25 … 0.50'
    """
    return missing if pd.isna(low) else f"{low:{form}} … {high:{form}}"
