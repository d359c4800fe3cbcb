"""Arrows: what exact annotation says that a word points back to, among other candidates.

Code has them from its grammar, questions from how they were built. Every arrow of a query stands
among candidates of the same kind, so that who likes the kind, or the nearest of it, can be told
from who knows the right one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

MAX_CANDIDATES = 16
"""Candidates that are kept of a query: the nearest, and whatever is right."""


class Arrow(NamedTuple):
    """A place in a text and what it points back to, by the first characters of words."""

    kind: str
    query: int
    right: tuple[int, ...]
    others: tuple[int, ...]
    """Other candidates, before the query."""


def arrow(kind: str, query: int, right: Iterable[int], candidates: Iterable[int]) -> Arrow | None:
    """An arrow whose candidates are before its query; None if nothing right is.

    >>> arrow("bracket", 9, [3], [3, 7, 11])
    Arrow(kind='bracket', query=9, right=(3,), others=(7,))
    """
    goals = {position for position in right if position < query}
    if not goals:
        return None
    earlier = {position for position in candidates if position < query}
    others = sorted(earlier - goals)
    return Arrow(
        kind=kind,
        query=query,
        right=tuple(sorted(goals)),
        others=tuple(others[-MAX_CANDIDATES:]),
    )


def moved_rows(
    table: Any, rows: ndarray, shift: int, positions: Iterable[str]
) -> dict[str, ndarray]:
    """Some rows of a table's columns, positions of tokens moved along."""
    columns = {column.name: getattr(table, column.name)[rows] for column in fields(table)}
    return columns | {name: columns[name] + shift for name in positions}


def _none() -> Int[ndarray, " cell"]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class ArrowTable:
    """The arrows of a window: a row for each query and candidate, by positions of tokens."""

    query: Int[ndarray, " cell"] = field(default_factory=_none)
    """The last token of a word."""
    first: Int[ndarray, " cell"] = field(default_factory=_none)
    last: Int[ndarray, " cell"] = field(default_factory=_none)
    """The candidate's first and last token."""
    kind: ndarray = field(default_factory=lambda: np.empty(0, "U1"))
    right: Bool[ndarray, " cell"] = field(default_factory=lambda: np.empty(0, bool))
    """True for what the query points to."""

    def __len__(self) -> int:
        return len(self.query)

    def take(self, rows: ndarray) -> ArrowTable:
        """The rows of a mask, or at these places."""
        return ArrowTable(**moved_rows(self, rows, 0, ()))

    def between(self, start: int, stop: int, begins: int = 1) -> ArrowTable:
        """The rows that lie wholly in `[start, stop)`, position `start` now being `begins`."""
        inside = (self.first >= start) & (self.query < stop) & (self.last < stop)
        return ArrowTable(**moved_rows(self, inside, begins - start, ("query", "first", "last")))


NO_ARROWS = ArrowTable()


def arrow_table(
    arrows: Iterable[Arrow],
    starts: Int[ndarray, " word"],
    first: Int[ndarray, " word"],
    last: Int[ndarray, " word"],
) -> ArrowTable:
    """The arrows whose words lie in a window."""
    row = {int(start): number for number, start in enumerate(starts)}
    cells: list[tuple[int, int, str, bool]] = []
    for arrow in arrows:
        query = row.get(arrow.query)
        # two words may share a token, of which neither comes before the other
        right = [row[position] for position in arrow.right if position in row]
        if query is None or not any(last[key] < first[query] for key in right):
            continue
        # keys that the query has seen
        others = [row[position] for position in arrow.others if position in row]
        for rows, is_right in ((right, True), (others, False)):
            before = (key for key in rows if last[key] < first[query])
            cells += [(query, key, arrow.kind, is_right) for key in before]
    if not cells:
        return NO_ARROWS
    query_rows, key_rows, kinds, rights = zip(*cells, strict=True)
    keys = np.array(key_rows, np.int64)
    return ArrowTable(
        query=last[np.array(query_rows, np.int64)],
        first=first[keys],
        last=last[keys],
        kind=np.array(kinds),
        right=np.array(rights, bool),
    )
