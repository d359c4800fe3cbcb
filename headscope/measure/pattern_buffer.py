"""Whole patterns of a sample's heads, kept while it is read, so that it need not be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.gather import Cells, CellsOf, T

MAX_BYTES = 256 * 2**20
"""Of patterns in memory; of more heads or longer windows the sample is read a second time."""


class PatternKey(NamedTuple):
    """A head, and a window by its number in the sample."""

    layer: int
    head: int
    window: int


class PatternBuffer:
    """Patterns in half precision, of each query the keys that it sees alone."""

    def __init__(
        self, sample: Sequence[Window], heads: Iterable[tuple[int, int]], per_layer: int
    ) -> None:
        self._sample, self._heads = sample, list(dict.fromkeys(heads))
        self._per_layer = per_layer
        self._patterns: dict[PatternKey, ndarray] = {}
        self._cells = [_cells(window) for window in sample]

    @property
    def fits(self) -> bool:
        """True where they need no more memory than they may."""
        size = sum(map(_count, self._sample)) * len(self._heads) * np.dtype(np.float16).itemsize
        return size <= MAX_BYTES

    def all_cells(self, members: Sequence[int], length: int) -> Iterator[Cells[PatternKey]]:
        """All cells of the heads in the windows of a batch."""
        flat = []
        for row, member in enumerate(members):
            query, key = self._cells[member]
            flat.append((row * self._per_layer * length + query) * length + key)
        for layer, head in self._heads:
            for member, cells in zip(members, flat, strict=True):
                yield Cells(layer, head, cells, PatternKey(layer, head, member))

    def store(self, key: PatternKey, values: Float[ndarray, " cell"]) -> None:
        """Keep what was asked for."""
        self._patterns[key] = values.astype(np.float16)

    def read(self, members: Sequence[int], cells_of: CellsOf[T]) -> Iterator[tuple[T, ndarray]]:
        """The attention in the cells that are asked for; see `gather.read_cells`."""
        for member in members:
            length = len(self._sample[member])
            for cells in cells_of([member], length):
                pattern = self._patterns[PatternKey(cells.layer, cells.head, member)]
                values = self._at(pattern, member, cells.flat)
                yield cells.what, values
                if cells.then is not None:
                    yield cells.what, self._at(pattern, member, cells.then(values))

    def _at(
        self, pattern: Float[ndarray, " kept"], member: int, flat: Int[ndarray, " cell"]
    ) -> Float[ndarray, " cell"]:
        """Cells of one window's pattern, given flat in `[query key]`."""
        window = self._sample[member]
        query, key = np.divmod(flat, len(window))
        row_ends = _row_ends(window)
        start, last = np.cumsum(row_ends)[query] - row_ends[query], row_ends[query] - 1
        seen = pattern[start + np.minimum(key, last)].astype(np.float32)
        return np.where(key <= last, seen, np.float32(0))


def _count(window: Window) -> int:
    """Cells of one head's pattern."""
    return int(_row_ends(window).sum())


def _cells(window: Window) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Query and key of each cell, row after row."""
    row_ends = _row_ends(window)
    query = np.repeat(np.arange(len(window)), row_ends)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(row_ends) - row_ends, row_ends)


def _row_ends(window: Window) -> Int[ndarray, " query"]:
    return window.attention_kind.row_end(np.arange(len(window)), len(window))
