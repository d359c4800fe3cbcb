"""Selected cells of some windows' patterns: one gather a layer, and no exponential of the rest.

Or whole patterns of a sample, kept while a run reads it, so that it need not be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.attention_kind import CAUSAL
from headscope.corpus.window import Window
from headscope.measure.batches import Batch, batches, in_memory
from headscope.measure.row_requests import ROW_CELLS
from headscope.models.engines.engine import (
    Entries,
    QueryRows,
    Request,
    Rows,
    Tile,
    Vectors,
    full_tile,
)
from headscope.models.engines.log_attention import Scores, log_probabilities
from headscope.relations.query_sampling import LONG
from headscope.stimuli.text import TEXT

if TYPE_CHECKING:
    from headscope.models.load import Model

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Cells(Generic[T]):
    """Cells of one head on one batch."""

    layer: int
    head: int
    flat: Int[ndarray, " cell"]
    """Where they would be in `[window head query key]` if the head were the first; heads that are
    asked the same share it."""
    what: T
    """What they were asked for."""
    then: Callable[[Float[ndarray, " cell"]], Int[ndarray, " more"]] | None = None
    """Given their values, further cells of the same rows, while these are at hand."""


CellsOf = Callable[[Sequence[int], int], Iterable[Cells[T]]]
"""The cells to read of a batch, given which windows it has and the length they are padded to."""


def read_cells(
    model: Model,
    windows: Sequence[Window],
    cells_of: CellsOf[T],
    *,
    batch_tokens: int,
    progress: Callable[[int], None] = lambda tokens: None,
) -> Iterator[tuple[T, Float[ndarray, " cell"]]]:
    """Run windows and yield the attention in the cells that are asked for, in single precision.

    Cells with a `then` give two answers, those of its further cells after their own.

    Args:
        model: the model to run; it stops after the last layer that is asked for.
        windows: what to run, in any order.
        cells_of: names the cells of a batch; it is given numbers of `windows`.
        batch_tokens: tokens of one forward pass.
        progress: called after each batch with its number of tokens, padding left out.
    """
    number = {id(window): i for i, window in enumerate(windows)}
    blocks = np.zeros(len(windows), np.int64)

    def read(batch: Batch) -> list[tuple[T, ndarray]]:
        tokens = batch.tokens()
        by_layer: dict[int, list[Cells[T]]] = {}
        for cells in cells_of([number[id(window)] for window in batch.windows], tokens.shape[1]):
            by_layer.setdefault(cells.layer, []).append(cells)
        return _run(model, tokens.to(model.device), by_layer) if by_layer else []

    for batch in batches(windows, blocks, {}, tokens=batch_tokens):
        for answers in in_memory(batch, read):
            yield from answers
        progress(sum(map(len, batch.windows)))


def _run(
    model: Model, tokens: Int[Tensor, "window position"], by_layer: dict[int, list[Cells[T]]]
) -> list[tuple[T, ndarray]]:
    results: list[tuple[T, ndarray]] = []
    length = tokens.shape[1]
    # of a long window a layer's pattern would take gigabytes
    by_head = length > LONG and _gives_vectors(model)

    def on_layer(layer: int, rows: Iterable[Any]) -> None:
        cells_here = by_layer.get(layer)
        if not cells_here:
            return
        (of_layer,) = rows

        def read(parts: list[tuple[int, ndarray]]) -> list[ndarray]:
            if by_head:
                return [_of_head(of_layer, head, flat, length) for head, flat in parts]
            return _at(of_layer, parts, model.engine.logarithms)

        values = read([(cells.head, cells.flat) for cells in cells_here])
        answers = list(zip(cells_here, values, strict=True))
        results.extend((cells.what, part) for cells, part in answers)
        followed = [(cells, cells.then(part)) for cells, part in answers if cells.then is not None]
        if followed:
            follow_up = read([(cells.head, flat) for cells, flat in followed])
            results.extend(
                (cells.what, part) for (cells, _), part in zip(followed, follow_up, strict=True)
            )

    requests: list[Request] = [Vectors() if by_head else full_tile(*tokens.shape)]
    model.engine.run(tokens, requests, on_layer, max(by_layer) + 1)
    return results


def _gives_vectors(model: Model) -> bool:
    return model.engine.name == "fused" and model.attention_kind is CAUSAL


def _of_head(
    scores: Scores, head: int, flat: Int[ndarray, " cell"], length: int
) -> Float[ndarray, " cell"]:
    """The values of a head's cells: rows of which many are asked for are read whole, in turn."""
    head_scores, heads = scores.of_head(head), scores.query.shape[1]
    window, cell = np.divmod(flat, heads * length * length)
    query, key = np.divmod(cell, length)
    values = np.zeros(len(flat), np.float32)
    for number in np.unique(window).tolist():
        # what no query sees is 0
        here = np.flatnonzero((window == number) & (key <= query))
        queries, count = np.unique(query[here], return_counts=True)
        dense_queries = queries[count >= DENSE]
        dense = np.isin(query[here], dense_queries)
        single, in_rows = here[~dense], here[dense]
        if len(single):
            entries = Entries(number, query[single], key[single])
            values[single] = log_probabilities(head_scores, entries)[:, 0].exp().cpu().numpy()
        at_once = max(1, ROW_CELLS // length)
        for start in range(0, len(dense_queries), at_once):
            request = QueryRows(number, dense_queries[start : start + at_once])
            rows = log_probabilities(head_scores, request)[0, 0]
            inside = in_rows[np.isin(query[in_rows], request.queries)]
            places = np.searchsorted(request.queries, query[inside]) * request.keys + key[inside]
            read = rows.flatten().index_select(0, torch.from_numpy(places).to(rows.device))
            values[inside] = read.exp().cpu().numpy()
    return values


DENSE = 64
"""Cells of a row from which on the row is read whole."""


def _at(rows: Rows, parts: list[tuple[int, ndarray]], logarithms: bool) -> list[ndarray]:
    """The values of all heads' cells by one gather and one copy to the processor."""
    cells = rows.shape[2] * rows.shape[3]
    flat = torch.from_numpy(
        np.concatenate([cells_of_head + head * cells for head, cells_of_head in parts])
    )
    flat = flat.to(rows.device)
    values = rows.reshape(-1).index_select(0, flat).float()
    values = values.exp() if logarithms else values
    ends = np.cumsum([len(cells_of_head) for _, cells_of_head in parts])
    return np.split(values.cpu().numpy(), ends[:-1])


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

    def take(self, window: int, patterns: WindowPatterns) -> None:
        """Keep the heads' patterns of a window."""
        for layer, head in self._heads:
            self._patterns[PatternKey(layer, head, window)] = patterns.of_layer(layer)[head]

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


class WindowPatterns:
    """All heads' patterns of a window in half precision, of each query the keys that it sees."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._row_ends = _row_ends(window)
        self._parts: dict[int, list[Float[ndarray, "head cell"]]] = {}

    def add(self, layer: int, tile: Tile, rows: Rows, *, logarithms: bool) -> None:
        """Keep the rows of a tile; those of a layer come one after the other."""
        ends = self._row_ends[tile.queries]
        starts = np.arange(len(ends)) * rows.shape[-1]
        flat = np.repeat(starts - np.cumsum(ends) + ends, ends) + np.arange(ends.sum())
        seen = rows[0].flatten(1).index_select(1, torch.from_numpy(flat).to(rows.device))
        values = seen.exp() if logarithms else seen
        self._parts.setdefault(layer, []).append(values.half().cpu().numpy())

    def of_layer(self, layer: int) -> Float[ndarray, "head cell"]:
        """The patterns of a layer's heads, row after row."""
        parts = self._parts[layer]
        if len(parts) > 1:
            self._parts[layer] = parts = [np.concatenate(parts, axis=1)]
        return parts[0]


class SamplePatterns:
    """Patterns of the windows of a sample, kept as they are read, as far as there is room.

    These windows are read one by one, so that each has the same patterns when it is read again.
    """

    def __init__(self, sample: Sequence[Window]) -> None:
        """Before anything is read."""
        self._sample = sample
        self._patterns: dict[int, WindowPatterns] = {}

    def wants(self, window: Window) -> bool:
        """True of a window of the sample that is read by itself."""
        return is_read_alone(window) and any(one is window for one in self._sample)

    def begin(self, window: Window, per_cell: int) -> WindowPatterns | None:
        """What keeps a window's patterns; None where it is not wanted or there is no room."""
        if not self.wants(window):
            return None
        windows = [one.window for one in self._patterns.values() if self.wants(one.window)]
        self._patterns = {id(one): self._patterns[id(one)] for one in windows}
        cells = sum(map(_count, [*windows, window]))
        if cells * per_cell * np.dtype(np.float16).itemsize > MAX_BYTES:
            return None
        self._patterns[id(window)] = WindowPatterns(window)
        return self._patterns[id(window)]

    def of(self, window: Window) -> WindowPatterns | None:
        """The patterns of a window that was read; None where they were not kept."""
        return self._patterns.get(id(window))


def is_read_alone(window: Window) -> bool:
    """True of a window that makes a batch by itself wherever it is of a sample.

    Of text, of which samples have most, and of which every row is read.
    """
    return window.stimulus == TEXT.name and len(window) <= LONG


def read_patterns(model: Model, window: Window) -> WindowPatterns:
    """The patterns of a window, the same as if they had been kept when it was read by itself.

    Raises:
        ModelError: it does not fit into memory.
    """

    def read(batch: Batch) -> WindowPatterns:
        tokens, patterns = batch.tokens(), WindowPatterns(window)
        tiles = model.engine.layout(*tokens.shape)

        def on_layer(layer: int, rows: Iterable[Rows]) -> None:
            for tile, values in zip(tiles, rows, strict=True):
                patterns.add(layer, tile, values, logarithms=model.engine.logarithms)

        model.engine.run(tokens.to(model.device), tiles, on_layer)
        return patterns

    (patterns,) = in_memory(Batch([window], np.zeros(1, np.int64), {}), read)
    return patterns


def _count(window: Window) -> int:
    return int(_row_ends(window).sum())


def _cells(window: Window) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    row_ends = _row_ends(window)
    query = np.repeat(np.arange(len(window)), row_ends)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(row_ends) - row_ends, row_ends)


def _row_ends(window: Window) -> Int[ndarray, " query"]:
    return window.attention_kind.row_end(np.arange(len(window)), len(window))
