"""Tables for the terminal: without lines, numbers right, and no text cut off."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rich.table import Table

NUMBERS = frozenset({"mass", "control", "lift", "n", "heads", "with the tag"})
"""Columns that stand right in every table."""


def plain_table(
    *columns: str,
    right: Collection[str] = (),
    whole: Collection[str] = ("head",),
    widths: Mapping[str, int] | None = None,
) -> Table:
    """An empty table with these columns; what is too long for its column goes on below.

    Args:
        columns: their titles, from left to right; those of `widths` when none is named.
        right: those that hold numbers, beside `NUMBERS`.
        whole: those whose text is never broken.
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
            no_wrap=column in whole,
            overflow="fold",
            max_width=widths.get(column),
        )
    return table
