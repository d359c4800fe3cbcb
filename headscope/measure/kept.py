"""Whole patterns of a sample's heads, kept while it is read, so that it need not be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.gather import Ask, Cells, T

MOST_BYTES = 256 * 2**20
"""Of patterns in memory; of more heads or longer windows the sample is read a second time."""


class Place(NamedTuple):
    """A head, and a window by its number in the sample."""

    layer: int
    head: int
    window: int


class Kept:
    """Patterns in half precision, of causal heads the keys up to each query alone."""

    def __init__(
        self, sample: Sequence[Window], heads: Iterable[tuple[int, int]], per_layer: int
    ) -> None:
        self._sample, self._heads = sample, list(dict.fromkeys(heads))
        self._per_layer = per_layer
        self._patterns: dict[Place, ndarray] = {}
        self._cells = [_cells(window) for window in sample]

    @property
    def fits(self) -> bool:
        """Whether they need no more memory than they may."""
        size = sum(map(_count, self._sample)) * len(self._heads) * np.dtype(np.float16).itemsize
        return size <= MOST_BYTES

    def ask(self, members: Sequence[int], length: int) -> Iterator[Cells[Place]]:
        """All cells of the heads in the windows of a batch."""
        flat = []
        for row, member in enumerate(members):
            query, key = self._cells[member]
            flat.append((row * self._per_layer * length + query) * length + key)
        for layer, head in self._heads:
            for member, own in zip(members, flat, strict=True):
                yield Cells(layer, head, own, Place(layer, head, member))

    def keep(self, place: Place, values: Float[ndarray, " cell"]) -> None:
        """Keep what was asked for."""
        self._patterns[place] = values.astype(np.float16)

    def read(self, chosen: Sequence[int], ask: Ask[T]) -> Iterator[tuple[T, ndarray]]:
        """The attention in the cells that are asked for; see `gather.read_cells`."""
        for member in chosen:
            length = len(self._sample[member])
            for cells in ask([member], length):
                pattern = self._patterns[Place(cells.layer, cells.head, member)]
                values = self._at(pattern, member, cells.flat)
                yield cells.what, values
                if cells.then is not None:
                    yield cells.what, self._at(pattern, member, cells.then(values))

    def _at(
        self, pattern: Float[ndarray, " kept"], member: int, flat: Int[ndarray, " cell"]
    ) -> Float[ndarray, " cell"]:
        """Cells of one window's pattern, given flat in `[query key]`."""
        if self._sample[member].both_ways:
            return np.asarray(pattern[flat], np.float32)
        query, key = np.divmod(flat, len(self._sample[member]))
        earlier = pattern[query * (query + 1) // 2 + np.minimum(key, query)].astype(np.float32)
        return np.where(key <= query, earlier, np.float32(0))


def _count(window: Window) -> int:
    """Cells of one head's pattern."""
    length = len(window)
    return length * length if window.both_ways else length * (length + 1) // 2


def _cells(window: Window) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Query and key of each cell, row after row."""
    length = len(window)
    if window.both_ways:
        query, key = np.divmod(np.arange(length * length), length)
        return query, key
    return np.tril_indices(length)
