"""Tables for the terminal: without lines, numbers right, and no text cut off."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pandas as pd
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Column, Table

from headscope.heads import head_name

NUMBERS = frozenset({"mass", "control", "lift", "n", "heads"})
"""Columns that stand right in every table."""


class FittedTable(Table):
    """A table that fits its lines between words: no column is so narrow that it breaks one.

    rich narrows the widest columns alone, and then breaks names in the middle beside others that
    have room. Where even the longest words do not fit beside each other, the widest are broken.
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        """Draw the table, its columns as wide as their text if there is room."""
        gaps = 2 * len(self.columns) if self.pad_edge else 2 * len(self.columns) - 2
        texts = [_widths_of(column, self.show_header) for column in self.columns]
        widths = fitted_widths(texts, options.max_width - gaps)
        for column, (_, line), width in zip(self.columns, texts, widths, strict=True):
            column.width = width
            column.no_wrap &= width >= line  # what may not wrap would be cut
        yield from super().__rich_console__(console, options)


def fitted_widths(columns: list[tuple[int, int]], total: int) -> list[int]:
    """The widths of columns beside each other.

    Args:
        columns: the width of each column's longest word, and of its longest line.
        total: the most characters of all of them together.

    >>> fitted_widths([(4, 4), (6, 20), (9, 12)], 30)
    [4, 14, 12]
    >>> fitted_widths([(4, 4), (6, 20), (9, 12)], 17)
    [4, 6, 7]
    """
    widths = [line for _, line in columns]
    for least in ([word for word, _ in columns], [1] * len(columns)):
        while sum(widths) > total:
            slack = [width - low for width, low in zip(widths, least, strict=True)]
            if max(slack) <= 0:
                break
            # of those that can give way the widest does
            widest = max(
                (column for column, spare in enumerate(slack) if spare > 0),
                key=lambda column: widths[column],
            )
            widths[widest] -= 1
    return widths


def _widths_of(column: Column, has_header: bool) -> tuple[int, int]:
    """The width of a column's longest word, and of its longest line."""
    texts = [str(cell) for cell in [*([column.header] if has_header else []), *column.cells]]
    lines = [cell_len(line) for text in texts for line in text.split("\n")]
    words = lines if column.no_wrap else [cell_len(word) for text in texts for word in text.split()]
    least = column.min_width or 1
    line = min(max([*lines, least]), column.max_width or max([*lines, least]))
    return min(max([*words, least]), line), line


def plain_table(
    *columns: str,
    right: Collection[str] = (),
    unwrapped: Collection[str] = ("head",),
    widths: Mapping[str, int] | None = None,
) -> Table:
    """An empty table with these columns; what is too long for its column goes on below.

    It fits its width between words; see `FittedTable`.

    Args:
        columns: their titles, from left to right; those of `widths` when none is named.
        right: those that hold numbers, beside `NUMBERS`.
        unwrapped: those whose text is never broken.
        widths: the most characters of a column.

    >>> [column.justify for column in plain_table("head", "mass", "p", right=("p",)).columns]
    ['left', 'right', 'right']
    """
    table = FittedTable(box=None, pad_edge=False, header_style="dim")
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


def frame_table(table: pd.DataFrame) -> Table:
    """A DataFrame for the terminal: `layer` and `head` as one name, three digits after the point.

    >>> frame = pd.DataFrame({"layer": [5], "head": [1], "mass": [0.25], "n": [3]})
    >>> [(column.header, *column.cells) for column in frame_table(frame).columns]
    [('head', 'L5H1'), ('mass', '0.250'), ('n', '3')]
    """
    if {"layer", "head"} <= {*table.columns}:
        names = [head_name(int(row.layer), int(row.head)) for row in table.itertuples()]
        table = table.drop(columns=["layer", "head"])
        table.insert(0, "head", names)
    numbers = table.select_dtypes("number").columns
    rendered = plain_table(*map(str, table.columns), right=list(map(str, numbers)))
    for row in table.itertuples(index=False):
        rendered.add_row(
            *(number_text(cell, ".3f" if isinstance(cell, float) else "", "–") for cell in row)
        )
    return rendered


def number_text(value: Any, form: str, missing: str = "") -> str:
    """A number of a table for a cell, and what stands there where it is missing.

    pandas hands whole numbers and fractions out, and NaN, NA or None for what is missing.

    >>> number_text(0.5, ".2f"), number_text(float("nan"), ".2f", "–")
    ('0.50', '–')
    """
    return missing if pd.isna(value) else format(value, form)
