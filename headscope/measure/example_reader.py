"""Patterns of the windows that examples are cut out of, kept while a run reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, in_memory
from headscope.measure.tally import Tally
from headscope.models.engines.engine import Rows, Tile
from headscope.relations.query_sampling import LONG
from headscope.stimuli.natural_text import TEXT

if TYPE_CHECKING:
    from headscope.models.model import Model

MAX_BYTES = 256 * 2**20
"""Patterns of a sample in memory; the other windows are read again for examples."""


class WindowPatterns:
    """All heads' patterns of a window in half precision, of each query the keys that it sees."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._row_ends = _row_ends(window)
        self._starts = np.cumsum(self._row_ends) - self._row_ends
        self._cells: dict[tuple[int, int], Int[Tensor, " cell"]] = {}
        """The kept cells of each tile, flat as `[query key]`, by its first query and its width."""
        self._parts: dict[int, list[Float[Tensor, "head cell"]]] = {}
        self._layers: dict[int, Float[ndarray, "head cell"]] = {}

    def add(self, layer: int, tile: Tile, rows: Rows, *, logarithms: bool) -> None:
        """Keep the rows of a tile; those of a layer come one after the other."""
        first_and_width = int(tile.queries.start), rows.shape[-1]
        if first_and_width not in self._cells:
            # each row of the tile is as wide as the tile, and the keys before its end are kept
            ends = self._row_ends[tile.queries]
            row = np.repeat(np.arange(len(ends)), ends)
            seen_starts = np.cumsum(ends) - ends
            key = np.arange(len(row)) - seen_starts[row]
            cells = torch.from_numpy(row * rows.shape[-1] + key)
            self._cells[first_and_width] = cells.to(rows.device)
        # keys that a query does not see are left out
        flat = rows[0].flatten(1)
        seen = flat.index_select(1, self._cells[first_and_width])
        values = seen.exp() if logarithms else seen
        parts = self._parts.setdefault(layer, [])
        parts.append(values.half())

    def of_layer(self, layer: int) -> Float[ndarray, "head cell"]:
        """The patterns of a layer's heads, row after row."""
        if layer not in self._layers:
            parts = self._parts.pop(layer)
            self._layers[layer] = torch.cat(parts, 1).cpu().numpy()
        return self._layers[layer]

    def values(
        self, layer: int, head: int, query: Int[ndarray, " cell"], key: Int[ndarray, " cell"]
    ) -> Float[ndarray, " cell"]:
        """A head's attention in some cells; 0 if the query does not see the key."""
        pattern = self.of_layer(layer)[head]
        last = self._row_ends[query] - 1
        cell = self._starts[query] + np.minimum(key, last)
        values = np.where(key <= last, pattern[cell], np.float16(0))
        return values.astype(np.float32)


class Sample:
    """A few windows of a stream, and their patterns as far as there is room.

    Each window has the same chance (Vitter 1985, algorithm R). Short windows of text are read by
    themselves, so that each has the same patterns when it is read again.
    """

    def __init__(
        self, size: int = TEXT.example_windows, *, seed: int, keeps_patterns: bool = True
    ) -> None:
        self.windows: list[Window] = []
        self._size, self._keeps_patterns = size, keeps_patterns
        self._rng = np.random.default_rng(seed)
        self._seen = 0
        """Windows of the stream so far."""
        self._patterns: dict[int, WindowPatterns] = {}

    def add(self, window: Window) -> None:
        """Draw whether the stream's next window is kept, and in whose place."""
        self._seen += 1
        if len(self.windows) < self._size:
            self.windows.append(window)
            return
        slot = int(self._rng.integers(self._seen))
        if slot < self._size:
            self._patterns.pop(id(self.windows[slot]), None)
            self.windows[slot] = window

    def wants(self, window: Window) -> bool:
        """True for a window of the sample that is read separately: text, with all its rows."""
        if not self._keeps_patterns:
            return False
        is_short_text = window.stimulus == TEXT.name and len(window) <= LONG
        return is_short_text and any(one is window for one in self.windows)

    def begin(self, window: Window, heads: int) -> WindowPatterns | None:
        """A place for a window's patterns; None if it is not wanted or there is no room.

        Args:
            window: the window that is about to be read.
            heads: number of heads in all layers that are read.
        """
        if not self.wants(window):
            return None
        return self._keep(WindowPatterns(window), heads)

    def _keep(self, patterns: WindowPatterns, heads: int) -> WindowPatterns | None:
        # the thread that prepares batches may drop a window meanwhile, so they are listed at once
        windows = [one.window for one in list(self._patterns.values())]
        windows.append(patterns.window)
        cells = sum(int(_row_ends(window).sum()) for window in windows)
        size = cells * heads * np.dtype(np.float16).itemsize
        if size > MAX_BYTES:
            return None
        self._patterns[id(patterns.window)] = patterns
        return patterns

    def patterns(self, model: Model, window: Window) -> WindowPatterns:
        """The patterns of a window, read if they are not kept.

        Raises:
            ModelError: the window does not fit into memory.
        """
        if id(window) in self._patterns:
            return self._patterns[id(window)]
        patterns = patterns_of_window(model, window)
        self._keep(patterns, model.heads * model.layers)
        return patterns


class PatternReader:
    """Keeps a window's patterns as the tiles of its rows are read."""

    def __init__(self, patterns: WindowPatterns, tiles: Sequence[Tile], model: Model) -> None:
        self.requests = tiles
        self._patterns = patterns
        self._numbers = list(model.attention_layers)
        self._logarithms = model.engine.logarithms

    def on_rows(self, layer: int, index: int, rows: Rows) -> None:
        """Keep the rows of a tile."""
        number, tile = self._numbers[layer], self.requests[index]
        self._patterns.add(number, tile, rows, logarithms=self._logarithms)

    def add_to(self, tally: Tally) -> None:
        """Add nothing: examples are cut out of the patterns later."""


def patterns_of_window(model: Model, window: Window) -> WindowPatterns:
    """The patterns of a window, the same as if they had been kept when it was read separately.

    Raises:
        ModelError: it does not fit into memory.
    """

    def read(batch: Batch) -> WindowPatterns:
        patterns = WindowPatterns(window)
        tokens = batch.tokens()
        tiles = model.engine.layout(*tokens.shape)

        def on_layer(layer: int, rows: Iterable[Rows]) -> None:
            for tile, values in zip(tiles, rows, strict=True):
                patterns.add(layer, tile, values, logarithms=model.engine.logarithms)

        model.engine.run(tokens.to(model.device), tiles, on_layer)
        return patterns

    (patterns,) = in_memory(Batch([window], np.zeros(1, np.int64)), read)
    return patterns


def _row_ends(window: Window) -> Int[ndarray, " query"]:
    queries = np.arange(len(window))
    return window.attention_kind.row_end(queries, len(window))
