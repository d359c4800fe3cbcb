"""Reader of how far a head prefers the target to all other candidates.

Queries at which a baseline is wrong are hard, the others easy: each is a part of its relation, with
sums of its own (`part` in `preference_reader`), by which conditions compare heads with baselines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.layer_reader import MakeReader, ReaderConfig
from headscope.measure.tally import Tally, grained
from headscope.models.engines.engine import Entries, Request, Tile
from headscope.relations.effects import of_attention
from headscope.relations.hard_queries import least_attention
from headscope.relations.parts import is_compared
from headscope.relations.query_sampling import LONG
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.challenge import CHALLENGE


@dataclass(frozen=True, eq=False)
class _Comparisons:
    """Compared queries of one request.

    `row` is the index of each query's sum, and `least` the least attention on its targets. `sizes`
    are numbers of cells: first of the targets of each query, then of its other candidates. The
    first `targets` cells are targets. `cells` are flat indices of these cells in the rows
    `[window head query key]` of a tile; None if the request reads exactly these cells.
    """

    row: Int[Tensor, " query"]
    least: Float[Tensor, "query 1"]
    sizes: Int[Tensor, " cell_count"]
    targets: int
    cells: Int[Tensor, "cell head"] | None


class PreferenceReader:
    """Reader that sums how far heads prefer the targets of queries.

    The preference at a query is the targets' share of the squared attention on all candidates, or
    0 if they have less attention than `least_attention` asks for. A share says more of a query
    than whether a target has the most, so that fewer queries decide a relation; squares make one
    strong target outweigh many weak candidates. Attention whose square is 0 in single precision
    counts as none. At a query whose attention is NaN the preference is 0.
    """

    def __init__(
        self,
        rows: Int[ndarray, "row 3"],
        parts: Sequence[tuple[Request, _Comparisons]],
        *,
        logarithms: bool,
    ) -> None:
        self._logarithms = logarithms
        self.requests = [request for request, _ in parts]
        self._rows = rows
        self._comparisons = [comparisons for _, comparisons in parts]
        self._preference: dict[int, Tensor] = {}

    def on_rows(self, layer: int, index: int, rows: Any) -> None:
        """Compare the attention on both sides of each query."""
        part = self._comparisons[index]
        # of a tile only the compared cells are taken
        values = rows
        if part.cells is not None:
            selected = rows.reshape(-1).index_select(0, part.cells.view(-1))
            values = selected.view(part.cells.shape)
        values = values.float()
        attention = values.exp() if self._logarithms else values
        # squared attention on each side of a query
        squares = torch.segment_reduce(attention**2, "sum", lengths=part.sizes, axis=0)
        of_targets, of_others = squares.chunk(2)
        share = of_targets / (of_targets + of_others)
        # candidates are far more than targets, and only targets are summed
        targets_of_query = part.sizes[: len(part.row)]
        on_targets = attention[: part.targets]
        mass = torch.segment_reduce(on_targets, "sum", lengths=targets_of_query, axis=0)
        # a query without attention on candidates, 0 / 0, prefers nothing
        preference = torch.where((mass >= part.least) & share.isfinite(), share, 0)
        # summed by row of the sums
        if layer not in self._preference:
            heads = preference.shape[1]
            self._preference[layer] = preference.new_zeros(len(self._rows), heads)
        self._preference[layer].index_add_(0, part.row, preference)

    def add_to(self, tally: Tally) -> None:
        """Add the number of queries and, for each layer, the sum of preferences.

        What of each lies in the challenge set is added to `chance` and `control`; see `Tally`.
        """
        block, relation, is_challenge = self._rows.T
        np.add.at(tally.queries, (block, relation), 1)
        np.add.at(tally.chance, (block, relation), is_challenge)
        if not self._preference:
            return
        # all layers come back from the device in one copy
        hits = grained(torch.stack([*self._preference.values()]).cpu().double().numpy())
        for layer, of_layer in zip(self._preference, hits, strict=True):
            np.add.at(tally.hits, (block, relation, layer), of_layer)
            of_challenge = of_layer * is_challenge[:, None]
            np.add.at(tally.control, (block, relation, layer), of_challenge)


def preference_reader(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> MakeReader | None:
    """Maker of the reader of a batch's compared queries; None without such queries."""
    # parts of relations that are judged by the preference for targets
    relations = of_attention(config.relations)
    compared_parts = [(i, part) for i, part in enumerate(relations) if is_compared(part)]
    # compared queries of the batch, each with a row of the sums
    rows: list[tuple[int, int, bool]] = []
    least: list[float] = []
    cells_of_blocks = []
    for window_number, window in enumerate(batch.windows):
        for relation, part in compared_parts:
            if window.stimulus not in part.stimuli:
                continue
            targets = window_pairs[window_number].targets(part)
            if not len(targets):
                continue
            # a query without other candidates compares nothing
            others = part.candidates_in(window_pairs[window_number])
            queries = others.queries
            targets = targets.of_queries(queries, len(window))
            cells = np.empty((len(targets) + len(others), 5), np.int64)
            cells[:, _WINDOW] = window_number
            cells[:, _QUERY] = np.concatenate([targets.query, others.query])
            cells[:, _NUMBER] = np.searchsorted(queries, cells[:, _QUERY])
            cells[:, _SIDE] = np.arange(len(cells)) >= len(targets)
            cells[:, _KEY] = np.concatenate([targets.key, others.key])
            # queries of a window that is cut into stretches lie in several blocks
            is_challenge = window.stimulus == CHALLENGE.name
            for block, is_in_block in batch.blocks_of(window_number, cells[:, _QUERY]):
                in_block = cells[is_in_block]
                # queries are numbered through the batch
                numbers, number = np.unique(in_block[:, _NUMBER], return_inverse=True)
                in_block[:, _NUMBER] = len(rows) + number
                cells_of_blocks.append(in_block)
                rows += [(block, relation, is_challenge)] * len(numbers)
                least += [least_attention(part.parent)] * len(numbers)
    if not cells_of_blocks:
        return None
    # targets first, then other candidates, by the number of their query
    all_cells = np.concatenate(cells_of_blocks)
    order = np.lexsort((all_cells[:, _NUMBER], all_cells[:, _SIDE]))
    parts = []
    for request, read_cells in _by_request(all_cells[order], tiles, batch):
        comparisons = _comparisons(request, read_cells, np.array(least), config)
        parts.append((request, comparisons))
    row_table = np.array(rows, np.int64).reshape(-1, 3)
    return partial(PreferenceReader, row_table, parts, logarithms=config.logarithms)


_WINDOW, _QUERY, _NUMBER, _SIDE, _KEY = range(5)


def _by_request(
    cells: Int[ndarray, "cell 5"], tiles: Sequence[Tile], batch: Batch
) -> Iterator[tuple[Request, Int[ndarray, "cell 5"]]]:
    """Requests with their cells: tiles of short windows, single cells of long ones."""
    window, query = cells[:, _WINDOW], cells[:, _QUERY]
    # of a long window few cells are compared, and a tile would read all of them
    if max(map(len, batch.windows)) > LONG:
        for number in np.unique(window).tolist():
            in_window = cells[window == number]
            request = Entries(number, in_window[:, _QUERY], in_window[:, _KEY])
            yield request, in_window
        return
    for tile in tiles:
        windows, queries = tile.windows, tile.queries
        in_windows = (window >= windows.start) & (window < windows.stop)
        in_queries = (query >= queries.start) & (query < queries.stop)
        inside = in_windows & in_queries
        if inside.any():
            yield tile, cells[inside]


def _comparisons(
    request: Request,
    cells: Int[ndarray, "cell 5"],
    least: Float[ndarray, " numbered"],
    config: ReaderConfig,
) -> _Comparisons:
    # cells of each query: first those of its targets, then of the others
    numbers, of_query = np.unique(cells[:, _NUMBER], return_inverse=True)
    part = of_query + len(numbers) * cells[:, _SIDE]
    sizes = np.bincount(part, minlength=2 * len(numbers))
    flat = None
    if isinstance(request, Tile):
        # a tile gives whole rows, out of which cells are picked: columns stand against the heads
        window = cells[:, [_WINDOW]] - request.windows.start
        query = cells[:, [_QUERY]] - request.queries.start
        key = cells[:, [_KEY]]
        # row after row: window, head, query
        window_and_head = window * config.heads + np.arange(config.heads)
        row = window_and_head * request.shape[1] + query
        flat = torch.from_numpy(row * request.keys + key).to(config.device)
    return _Comparisons(
        row=torch.from_numpy(numbers).to(config.device),
        least=torch.from_numpy(least[numbers]).float().to(config.device)[:, None],
        sizes=torch.from_numpy(sizes).to(config.device),
        targets=int(sizes[: len(numbers)].sum()),
        cells=flat,
    )
