"""Tables for the terminal: without lines, numbers right, and no text cut off."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
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
        for column, text, width in zip(self.columns, texts, widths, strict=True):
            column.width = width
            column.no_wrap &= width >= text.line  # what may not wrap would be cut
        yield from super().__rich_console__(console, options)


@dataclass(frozen=True)
class TextWidths:
    """Characters of a column's longest word, and of its longest line."""

    word: int
    line: int


def fitted_widths(columns: list[TextWidths], total: int) -> list[int]:
    """The widths of columns beside each other.

    Args:
        columns: the width of the text of each column.
        total: the most characters of all of them together.

    >>> columns = [TextWidths(4, 4), TextWidths(6, 20), TextWidths(9, 12)]
    >>> fitted_widths(columns, 30), fitted_widths(columns, 17)
    ([4, 14, 12], [4, 6, 7])
    """
    widths = [column.line for column in columns]
    narrowed = _narrowed(widths, [column.word for column in columns], total)
    return _narrowed(narrowed, [1] * len(columns), total)


def _narrowed(widths: list[int], least: list[int], total: int) -> list[int]:
    """The widths, the widest narrowed first, until they fit or none exceeds its least."""
    widths = list(widths)
    while sum(widths) > total:
        wide = [column for column, width in enumerate(widths) if width > least[column]]
        if not wide:
            break
        widest = max(wide, key=lambda column: widths[column])
        widths[widest] -= 1
    return widths


def _widths_of(column: Column, has_header: bool) -> TextWidths:
    """The width of a column's longest word, and of its longest line."""
    texts = [str(cell) for cell in column.cells]
    if has_header:
        texts.append(str(column.header))
    # text that may not wrap is one word
    lines = [line for text in texts for line in text.split("\n")]
    words = lines if column.no_wrap else [word for line in lines for word in line.split()]
    least = column.min_width or 1
    longest_line = max([least, *map(cell_len, lines)])
    if column.max_width:
        longest_line = min(longest_line, column.max_width)
    longest_word = max([least, *map(cell_len, words)])
    return TextWidths(min(longest_word, longest_line), longest_line)


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
