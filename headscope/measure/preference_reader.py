"""Reader of the queries at which a head prefers the target to every other candidate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.layer_reader import MakeReader, ReaderConfig
from headscope.measure.tally import Tally
from headscope.models.engines.engine import Entries, Request, Tile
from headscope.relations.effects import of_attention
from headscope.relations.hard_queries import ComparedPart
from headscope.relations.query_sampling import LONG
from headscope.relations.window_pairs import WindowPairs


@dataclass(frozen=True, eq=False)
class _Comparisons:
    """Compared queries of one request.

    `row` is the index of each query's sum. `sizes` are numbers of cells: first of the targets of
    each query, then of its other candidates. `cells` are flat indices of these cells in the rows
    `[window head query key]` of a tile; None if the request reads exactly these cells.
    """

    row: Int[Tensor, " query"]
    sizes: Int[Tensor, " cell_count"]
    cells: Int[Tensor, "cell head"] | None


class PreferenceReader:
    """Reader that counts queries at which a target has more attention than any other candidate."""

    def __init__(
        self, rows: Int[ndarray, "row 2"], parts: Sequence[tuple[Request, _Comparisons]]
    ) -> None:
        self.requests: list[Request] = [request for request, _ in parts]
        self._rows = rows
        self._comparisons = {id(request): comparisons for request, comparisons in parts}
        self._preferred: dict[int, Tensor] = {}

    def on_rows(self, layer: int, request: Request, rows: Any) -> None:
        """Compare the attention on both sides of each query."""
        part = self._comparisons[id(request)]
        values = rows
        if part.cells is not None:
            values = rows.reshape(-1).index_select(0, part.cells.view(-1)).view(part.cells.shape)
        largest = torch.segment_reduce(values.float(), "max", lengths=part.sizes, axis=0)
        target, other = largest.chunk(2)
        if layer not in self._preferred:
            self._preferred[layer] = target.new_zeros(len(self._rows), target.shape[1])
        self._preferred[layer].index_add_(0, part.row, (target > other).float())

    def add_to(self, tally: Tally) -> None:
        """Add the number of queries, and for each layer that of preferred targets."""
        rows, counts = np.unique(self._rows, axis=0, return_counts=True)
        tally.queries[tuple(rows.T)] += counts
        for layer, preferred in self._preferred.items():
            np.add.at(tally.hits, (*self._rows.T, layer), preferred.cpu().double().numpy())


def preference_reader(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> MakeReader | None:
    """Reader of a batch's compared queries; None without such queries."""
    compared_cells = list(_compared_cells(batch, window_pairs, config))
    if not compared_cells:
        return None
    rows = np.concatenate([np.repeat([row], size, 0) for row, size, _ in compared_cells])
    starts = np.cumsum([0, *(size for _, size, _ in compared_cells)])
    cells = np.concatenate(
        [
            cells + np.array([0, 0, start, 0, 0])
            for start, (*_, cells) in zip(starts[:-1], compared_cells, strict=True)
        ]
    )
    cells = cells[np.lexsort((cells[:, 2], cells[:, 3]))]
    parts = [
        (request, _comparisons(request, read_cells, config))
        for request, read_cells in _by_request(cells, tiles, batch)
    ]
    return partial(PreferenceReader, rows, parts)


_WINDOW, _QUERY, _NUMBER, _SIDE, _KEY = range(5)


def _compared_cells(
    batch: Batch, window_pairs: Sequence[WindowPairs], config: ReaderConfig
) -> Iterator[tuple[tuple[int, int], int, Int[ndarray, "cell 5"]]]:
    """Block and relation, number of queries, and cells: window, query, number, side and key."""
    relations = of_attention(config.relations)
    parts = [(i, part) for i, part in enumerate(relations) if isinstance(part, ComparedPart)]
    for window_number, window in enumerate(batch.windows):
        for index, part in parts:
            if window.stimulus not in part.stimuli:
                continue
            targets = window_pairs[window_number].targets(part)
            if not len(targets):
                continue
            others = part.candidates_in(window_pairs[window_number])
            queries = others.queries
            targets = targets.of_queries(queries, len(window))
            cells = np.full((len(targets) + len(others), 5), window_number)
            cells[:, _QUERY] = np.concatenate([targets.query, others.query])
            cells[:, _NUMBER] = np.searchsorted(queries, cells[:, _QUERY])
            cells[:, _SIDE] = np.arange(len(cells)) >= len(targets)
            cells[:, _KEY] = np.concatenate([targets.key, others.key])
            for block, is_in_block in batch.blocks_of(window_number, cells[:, _QUERY]):
                in_block = cells[is_in_block]
                numbers, number = np.unique(in_block[:, _NUMBER], return_inverse=True)
                in_block[:, _NUMBER] = number
                yield (block, index), len(numbers), in_block


def _by_request(
    cells: Int[ndarray, "cell 5"], tiles: Sequence[Tile], batch: Batch
) -> Iterator[tuple[Request, Int[ndarray, "cell 5"]]]:
    """Requests with their cells: tiles of short windows, single cells of long ones."""
    if max(map(len, batch.windows)) > LONG:
        for window_number in np.unique(cells[:, _WINDOW]).tolist():
            in_window = cells[cells[:, _WINDOW] == window_number]
            yield Entries(window_number, in_window[:, _QUERY], in_window[:, _KEY]), in_window
        return
    for tile in tiles:
        window, query = cells[:, _WINDOW], cells[:, _QUERY]
        inside = (window >= tile.windows.start) & (window < tile.windows.stop)
        inside &= (query >= tile.queries.start) & (query < tile.queries.stop)
        if inside.any():
            yield tile, cells[inside]


def _comparisons(
    request: Request, cells: Int[ndarray, "cell 5"], config: ReaderConfig
) -> _Comparisons:
    numbers, of_query = np.unique(cells[:, _NUMBER], return_inverse=True)
    sizes = np.bincount(of_query + len(numbers) * cells[:, _SIDE], minlength=2 * len(numbers))
    flat = None
    if isinstance(request, Tile):
        queries = request.shape[1]
        window = cells[:, _WINDOW] - request.windows.start
        head = np.arange(config.heads)
        row = (window[:, None] * config.heads + head) * queries
        row = row + (cells[:, _QUERY] - request.queries.start)[:, None]
        flat = torch.from_numpy(row * request.keys + cells[:, [_KEY]]).to(config.device)
    return _Comparisons(
        torch.from_numpy(numbers).to(config.device),
        torch.from_numpy(sizes).to(config.device),
        flat,
    )
