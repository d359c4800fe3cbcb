"""Lists and tables as Markdown writes them: what an item or a cell points back to."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headscope.corpus.gold_links import MAX_CANDIDATES, arrow
from headscope.corpus.structure.pairs import Ruled

ITEM, HEADER, ABOVE = "list-item", "table-header", "cell-above"
_ITEM = re.compile(r"([^\S\n]*)([-*+•]|\d{1,3}[.)])[^\S\n]+\S")
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_RULER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")
_BAR = re.compile(r"(?<!\\)\|")
_FAR = 64
"""Line starts before an item that are looked through for candidates."""
WIDEST = 400
"""Characters of the line below a header, and words of a row that is pointed to: what is wider is
data and no table to be read."""
TAB = 4
"""Columns that a tab is wide, as Markdown counts them."""


@dataclass(frozen=True)
class _Line:
    start: int
    text: str


@dataclass
class _List:
    indent: int
    form: str
    """`-`, `*`, `+`, `•`; `.` or `)` where items are numbered."""
    last: int
    """Where its last item's marker stands."""


def list_items(text: str) -> Iterator[Ruled]:
    r"""Each list item's marker with that of the item before it in the same list.

    Its candidates are the starts of all lines before it. Items are of one list where they are
    indented alike and marked alike, and no paragraph stands between them that is no part of one.
    The simple rule is the nearest line that is marked alike, indented or not.

    >>> found = list_items("- a\n  - b\n  - c\n- d\n")
    >>> [(each.arrow.query, each.arrow.right, each.nearest) for each in found]
    [(12, (6,), 6), (16, (0,), 12)]
    """
    open_lists: list[_List] = []
    starts: list[int] = []
    markers: list[tuple[int, str]] = []
    blank = False
    for line in _outside_fences(text):
        stripped = line.text.lstrip()
        if not stripped:
            blank = True
            continue
        indent = _width(line.text[: len(line.text) - len(stripped)])
        start = line.start + len(line.text) - len(stripped)
        match = _ITEM.match(line.text)
        if match is not None:
            form = match[2][-1]
            open_list = _list_of(open_lists, indent, form)
            if open_list is not None:
                same_form = tuple(at for at, its in markers[-_FAR:] if its == form)
                pointed = arrow(ITEM, start, [open_list.last], starts[-_FAR:])
                if pointed is not None:
                    yield Ruled(pointed, same_form[-MAX_CANDIDATES:])
                open_list.last = start
            else:
                open_lists.append(_List(indent, form, start))
            markers.append((start, form))
        elif blank:  # a paragraph, which ends the lists that it is not indented under
            while open_lists and open_lists[-1].indent >= indent:
                open_lists.pop()
        starts.append(start)
        blank = False


def _list_of(open_lists: list[_List], indent: int, form: str) -> _List | None:
    """The open list that an item goes on with, all within it being closed."""
    while open_lists and open_lists[-1].indent > indent:
        open_lists.pop()
    if open_lists and open_lists[-1].indent == indent:
        if open_lists[-1].form == form:
            return open_lists[-1]
        open_lists.pop()
    return None


def table_cells(text: str, words: Sequence[int]) -> Iterator[Ruled]:
    """Each table cell's first word with the words of its column's header, and of the cell above.

    Candidates are the words of the other header cells, and of the row above. The simple rules are
    the last header cell and the last cell of the row above.

    Args:
        text: of a document.
        words: the first characters of its words, in order.
    """
    lines = list(_outside_fences(text))
    for number, ruler in enumerate(lines):
        if not (number and "|" in ruler.text[:WIDEST] and _is_ruler(ruler.text)):
            continue
        header = _cells(lines[number - 1], words)
        if len(header) < 2 or len(header) != len(_cells_of(ruler)):
            continue
        above = header
        for line in lines[number + 1 :]:
            if not _BAR.search(line.text):
                break
            row = _cells(line, words)
            yield from _row(row, header, HEADER)
            if above is not header:
                yield from _row(row, above, ABOVE)
            above = row


def _is_ruler(line: str) -> bool:
    """True for a line that parts a table's header from its rows."""
    stripped = line.strip()
    return len(stripped) <= WIDEST and _RULER.fullmatch(stripped) is not None


def _row(row: list[list[int]], upper: list[list[int]], kind: str) -> Iterator[Ruled]:
    if sum(map(len, upper)) > WIDEST:
        return
    every = [word for cell in upper for word in cell]
    for cell, above in zip(row, upper, strict=False):
        if cell and above:
            pointer = arrow(kind, cell[0], above, every)
            if pointer is not None:
                yield Ruled(pointer, (every[-1],))


def _cells(line: _Line, words: Sequence[int]) -> list[list[int]]:
    """The first characters of the words of each cell."""
    return [
        list(words[bisect_left(words, start) : bisect_left(words, end)])
        for start, end in _cells_of(line)
    ]


def _cells_of(line: _Line) -> list[tuple[int, int]]:
    """Begin and end of each cell of a row; bars at both ends are its frame."""
    bars = [bar.start() for bar in _BAR.finditer(line.text)]
    edges = [-1, *bars, len(line.text)]
    if not line.text[: edges[1]].strip():
        edges = edges[1:]
    if len(edges) > 1 and not line.text[edges[-2] + 1 :].strip():
        edges = edges[:-1]
    return [
        (line.start + bar_before + 1, line.start + right) for bar_before, right in pairwise(edges)
    ]


def _outside_fences(text: str) -> Iterator[_Line]:
    """The lines of a text that are no code between fences; a fence is a line of its own kind."""
    start, fence = 0, ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match is None and not fence:
            yield _Line(start, line)
        elif match is not None:
            fence = "" if fence == match[1] else fence or match[1]
        start += len(line) + 1


def _width(blanks: str) -> int:
    return len(blanks.expandtabs(TAB))
