"""Reader of the cells of the relations in a batch, and of its sink positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.layer_reader import MakeReader, ReaderConfig
from headscope.measure.selection import find_all, hit_shares, request_of_cell, row_requests
from headscope.measure.sink_positions import (
    LATE,
    SinkPositions,
    find_sink_positions,
    known_columns,
    late_tiles,
    without_sinks,
)
from headscope.measure.sparse import summing_matrix
from headscope.measure.tally import Tally, grained
from headscope.models.engines.engine import Entries, PatternRegion, QueryRows, Request, Rows, Tile
from headscope.relations.effects import of_attention
from headscope.relations.pairs import Pairs, distinct_values
from headscope.relations.relation import SINK_POSITION, PairSet
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TEXT


@dataclass(frozen=True, eq=False)
class TileReduction:
    """The cells that lie in one tile of rows, and how they add up.

    `cells` are the tile's distinct cells of every head, as flat indices into its rows
    `[window head query key]`; `targets` are those of the target cells, the first token's left out,
    and `target_rows` their queries, as flat indices into `[window head query]`. `mass` and `hit`
    are sparse matrices that add weighted cells up by block and relation, targets first and controls
    below them.
    """

    cells: Int[Tensor, "cell head"]
    targets: Int[Tensor, "target head"]
    target_rows: Int[Tensor, "target head"]
    mass: Tensor
    hit: Tensor

    def sums(
        self, rows: Rows, sinks: Int[Tensor, "window column"], *, logarithms: bool
    ) -> tuple[Tensor, Tensor]:
        """Masses `[2 rows, head]` and arg-max hits `[rows, head]`.

        A target that is the row's largest counts 1; of k equally large keys, wherever they are,
        each counts 1/k, so that a hit does not depend on what else is asked.

        Args:
            rows: the tile's rows, probabilities or their logarithms; they are as before afterwards.
            sinks: sink positions of each window, −1 for none; never the largest of a row.
            logarithms: whether rows are logarithms.
        """
        rows = rows.contiguous()
        values = _at(rows, self.cells)
        with without_sinks(rows, sinks, logarithms=logarithms):
            largest = rows.amax(-1)
            # attention that is 0 hits nothing
            least = largest.exp() if logarithms else largest
            best = _at(largest.masked_fill(least <= 0, torch.inf), self.target_rows)
            hits = (_at(rows, self.targets) >= best).view(-1).nonzero()[:, 0]
            shares = self._shares(hits, rows, largest)
        if logarithms:
            values = values.exp_()
        return self.mass @ values, self.hit @ shares

    def _shares(
        self,
        hits: Int[Tensor, " hit"],
        rows: Rows,
        largest: Float[Tensor, "window head query"],
    ) -> Float[Tensor, "target head"]:
        """1/k for each hit in a row of which k keys are the largest, else 0.

        Hits are flat indices into `targets`.
        """
        cells = self.targets.view(-1)[hits]
        hit_rows = self.target_rows.view(-1)[hits]
        flat = rows.view(-1)
        largest = largest.view(-1)
        count = torch.zeros_like(largest, dtype=torch.float32)
        ones = torch.ones_like(hit_rows, dtype=torch.float32)
        count.index_add_(0, hit_rows, ones)
        # if a row without its hits has the same maximum, other keys are as large: a rare case
        flat.index_fill_(0, cells, -torch.inf)
        largest_of_others = rows.amax(-1).view(-1)
        is_tied = (largest_of_others == largest) & (count > 0)
        tied = is_tied.nonzero()[:, 0]
        tied_rows = rows.view(len(largest), -1)[tied]
        equal = tied_rows == largest[tied, None]
        count[tied] += equal.sum(-1)
        flat.index_copy_(0, cells, largest[hit_rows])
        shares = torch.zeros_like(self.targets, dtype=torch.float32)
        shares.view(-1)[hits] = 1 / count[hit_rows]
        return shares

    def to(self, device: torch.device | str) -> TileReduction:
        """The same part with its tensors on a device."""
        return TileReduction(*(getattr(self, field.name).to(device) for field in fields(self)))


def _at(values: Tensor, places: Int[Tensor, "place head"]) -> Float[Tensor, "place head"]:
    """Elements by flat index, in single precision; faster than indexing with a matrix."""
    return values.reshape(-1).index_select(0, places.view(-1)).view(places.shape).float()


@dataclass(frozen=True, eq=False)
class SelectionPart:
    """Attention that is read of each layer at once, and how its values add up."""

    request: PatternRegion
    reduction: TileReduction | Tensor
    """Of rows a reduction; of single cells, which have no hits, a matrix of weights."""


@dataclass(frozen=True, eq=False)
class Selection:
    """All cells that the relations of a batch look at; a row for each block and relation."""

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    parts: tuple[SelectionPart, ...]


def select(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> Selection | None:
    """Find and draw all pairs of a batch; None if absent.

    Draws are seeded by the run's seed and the window's own text, so that they do not depend on
    batches or on the order of documents.
    """
    relations = of_attention(config.relations)
    pairs_in_windows = _pairs_in_windows(batch, window_pairs, config)
    if not pairs_in_windows:
        return None
    # a row of the sums for each block and relation
    numbers = [
        in_window.block * len(relations) + in_window.relation for in_window in pairs_in_windows
    ]
    rows, row_of = np.unique(numbers, return_inverse=True)
    queries, chance = np.zeros(len(rows), np.int64), np.zeros(len(rows))
    for row, in_window in zip(row_of, pairs_in_windows, strict=True):
        queries[row] += len(in_window.pairs.targets.queries)
        chance[row] += _chance(batch.windows[in_window.window], in_window.pairs)
    shape = _Shape(len(rows), max(map(len, batch.windows)), config.heads)
    cells = _cells(pairs_in_windows, row_of, shape)
    hits = _hits(pairs_in_windows, row_of, shape)
    needed_rows = hits.cell // shape.length
    requests = row_requests(batch.windows, tiles, needed_rows, cells.cell, heads=config.heads)
    reductions = _reductions(requests, cells, hits, shape)
    return Selection(
        block=rows // len(relations),
        relation=rows % len(relations),
        queries=queries,
        chance=grained(chance),
        parts=tuple(
            SelectionPart(request, reduction.to(config.device))
            for request, reduction in zip(requests, reductions, strict=True)
        ),
    )


@dataclass(frozen=True, eq=False)
class _PairsInWindow:
    """Targets and controls of one relation in one window of a batch."""

    window: int
    """Place of the window in the batch."""
    block: int
    relation: int
    """Place of the relation among those of attention."""
    pairs: PairSet
    hit_shares: Float[ndarray, " target"]
    """The weight of a hit of each target; see `hit_shares`."""


def _pairs_in_windows(
    batch: Batch, window_pairs: Sequence[WindowPairs], config: ReaderConfig
) -> list[_PairsInWindow]:
    relations = of_attention(config.relations)
    pairs_in_windows = []
    for window in range(len(batch.windows)):
        for relation, cells in find_all(window_pairs[window], relations, config.seed):
            # the sample of rows is drawn from the whole window, however many blocks it lies in
            shares = hit_shares(batch.windows[window], cells.targets)
            for block, in_block in batch.blocks_of(window, cells.targets.query):
                pairs_in_windows.append(
                    _PairsInWindow(
                        window=window,
                        block=block,
                        relation=relation,
                        pairs=_of_block(batch, window, block, cells),
                        hit_shares=shares[in_block],
                    )
                )
    return pairs_in_windows


def _of_block(batch: Batch, row: int, block: int, pairs: PairSet) -> PairSet:
    """The targets of a window's queries in a block, and the controls of the same queries.

    A control's cell may lie at a query of another block.
    """
    if row not in batch.query_blocks:
        return PairSet(pairs.targets, pairs.controls)
    block_of_query = batch.query_blocks[row]
    targets = pairs.targets.where(block_of_query[pairs.targets.query] == block)
    controls = pairs.controls.where(block_of_query[pairs.controls.owner] == block)
    return PairSet(targets, controls)


@dataclass(frozen=True, eq=False)
class _Side:
    """Weighted cells `(window query key)`, flat within one head, and the row each belongs to."""

    row: Int[ndarray, " pair"]
    cell: Int[ndarray, " pair"]
    weight: Float[ndarray, " pair"]

    def take(self, which: ndarray) -> _Side:
        return _Side(self.row[which], self.cell[which], self.weight[which])

    def matrix(self, rows: int, cells: Int[ndarray, " cell"]) -> Tensor:
        """The sparse matrix `[row cell]` of the weights."""
        cell = np.searchsorted(cells, self.cell)
        return summing_matrix(self.row, cell, self.weight, (rows, len(cells)))


@dataclass(frozen=True)
class _Shape:
    """Sizes of the sums of a batch, and of its patterns."""

    rows: int
    """Rows of the sums."""
    length: int
    """Tokens of the longest window."""
    heads: int


def _side(
    pairs_in_windows: Sequence[_PairsInWindow],
    pairs: Sequence[Pairs],
    row_of: Int[ndarray, " pairs"],
    shape: _Shape,
) -> _Side:
    """The cells of some pairs, one for each of those in windows."""
    cells = [
        (in_window.window * shape.length + part.query) * shape.length + part.key
        for in_window, part in zip(pairs_in_windows, pairs, strict=True)
    ]
    row = np.repeat(row_of, [len(part) for part in pairs])
    weights = [part.weight for part in pairs]
    return _Side(row, np.concatenate(cells), np.concatenate(weights))


def _cells(
    pairs_in_windows: Sequence[_PairsInWindow], row_of: Int[ndarray, " pairs"], shape: _Shape
) -> _Side:
    """Targets, and the controls in rows below them."""
    targets = [in_window.pairs.targets for in_window in pairs_in_windows]
    controls = [in_window.pairs.controls for in_window in pairs_in_windows]
    of_targets = _side(pairs_in_windows, targets, row_of, shape)
    of_controls = _side(pairs_in_windows, controls, row_of + shape.rows, shape)
    return _Side(
        np.concatenate([of_targets.row, of_controls.row]),
        np.concatenate([of_targets.cell, of_controls.cell]),
        np.concatenate([of_targets.weight, of_controls.weight]),
    )


def _hits(
    pairs_in_windows: Sequence[_PairsInWindow],
    row_of: Int[ndarray, " pairs"],
    shape: _Shape,
) -> _Side:
    """The targets whose hits are counted; the first token is never one."""
    targets = [in_window.pairs.targets for in_window in pairs_in_windows]
    side = _side(pairs_in_windows, targets, row_of, shape)
    shares = np.concatenate([in_window.hit_shares for in_window in pairs_in_windows])
    hits = replace(side, weight=side.weight * shares)
    key = hits.cell % shape.length
    is_counted = (key > 0) & (hits.weight > 0)
    return hits.take(is_counted)


def _reductions(
    requests: Sequence[PatternRegion], cells: _Side, hits: _Side, shape: _Shape
) -> Iterator[TileReduction | Tensor]:
    """The reduction of each request's values; every cell belongs to one of them."""
    of_cells, of_hits = (
        _split(request_of_cell(requests, side.cell, shape.length), len(requests))
        for side in (cells, hits)
    )
    for request, cell_rows, hit_rows in zip(requests, of_cells, of_hits, strict=True):
        if isinstance(request, Entries):
            flat = (request.window * shape.length + request.queries) * shape.length + request.keys
            yield cells.take(cell_rows).matrix(2 * shape.rows, flat)
        else:
            yield _tile_reduction(request, cells.take(cell_rows), hits.take(hit_rows), shape)


def _split(owner: Int[ndarray, " cell"], count: int) -> list[ndarray]:
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, count)))


def _tile_reduction(
    request: Tile | QueryRows, all_cells: _Side, targets: _Side, shape: _Shape
) -> TileReduction:
    rows, length, heads = shape.rows, shape.length, shape.heads
    cells, target_cells = distinct_values(all_cells.cell), distinct_values(targets.cell)
    queries = request.shape[1]
    head = torch.arange(heads) * queries

    def row(cell: ndarray) -> Int[ndarray, " cell"]:
        """Place of a cell's query among the rows of head 0."""
        window, query = np.divmod(cell // length, length)
        if isinstance(request, QueryRows):
            return np.searchsorted(request.queries, query)
        first = request.windows.start
        return np.asarray((window - first) * heads * queries + query - request.queries.start)

    flat = torch.from_numpy(row(cells) * request.keys + cells % length)[:, None]
    flat = flat + head * request.keys
    return TileReduction(
        cells=flat,
        targets=flat[torch.from_numpy(np.searchsorted(cells, target_cells))],
        target_rows=torch.from_numpy(row(target_cells))[:, None] + head,
        mass=all_cells.matrix(2 * rows, cells),
        hit=targets.matrix(rows, target_cells),
    )


def _chance(window: Window, pairs: PairSet) -> float:
    """The mass of a head that spreads evenly over the keys of each row, summed over queries."""
    targets = pairs.targets
    return float((targets.weight / window.keys_seen(targets.query)).sum())


class CellReader:
    """Sums of the attention on targets and controls, and of late queries on sink positions."""

    def __init__(
        self,
        batch: Batch,
        selection: Selection | None,
        known_columns: Int[Tensor, "window column"],
        *,
        logarithms: bool,
    ) -> None:
        self._batch = batch
        self._selection = selection
        self._logarithms = logarithms
        self._late = late_tiles(batch.windows)
        self._parts = () if selection is None else selection.parts
        self.requests: list[Request] = [*self._late, *(part.request for part in self._parts)]
        self._late_rows: list[tuple[Tile, Rows]] = []
        self._columns = self._known = known_columns
        self._sinks: dict[int, SinkPositions] = {}
        self._values: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def on_rows(self, layer: int, index: int, rows: Tensor) -> None:
        """Find the sink positions in the late rows, which come first, then add up the cells."""
        if index < len(self._late):
            self._late_rows.append((self._late[index], rows))
            if index + 1 == len(self._late):
                self._find_sinks(layer, rows.device)
        else:
            self._add_cells(layer, self._parts[index - len(self._late)], rows)

    def _find_sinks(self, layer: int, device: torch.device) -> None:
        """Find a layer's sink positions, which are left out of its arg-max from here on."""
        sinks = find_sink_positions(
            self._batch.windows, self._late_rows, logarithms=self._logarithms
        )
        self._sinks[layer] = sinks
        self._columns = torch.cat([sinks.columns, self._known.to(device)], 1)
        self._late_rows = []

    def _add_cells(self, layer: int, part: SelectionPart, rows: Tensor) -> None:
        """Add up the cells of one part of the selection."""
        request, reduction = part.request, part.reduction.to(rows.device)
        if isinstance(reduction, Tensor):
            mass = reduction @ (rows.float().exp() if self._logarithms else rows.float())
            sums = mass, mass.new_zeros(len(mass) // 2, mass.shape[1])
        else:
            windows = request.windows if isinstance(request, Tile) else [request.window]
            columns = self._columns[windows].to(rows.device)
            sums = reduction.sums(rows, columns, logarithms=self._logarithms)
        self._values.setdefault(layer, []).append(sums)

    def add_to(self, tally: Tally) -> None:
        """Add queries and chance, which do not depend on heads, and each layer's sums."""
        if SINK_POSITION in tally.relations:
            self._add_sinks(tally, tally.relations.index(SINK_POSITION))
        selection = self._selection
        if selection is None:
            return
        rows = (selection.block, selection.relation)
        np.add.at(tally.queries, rows, selection.queries)
        np.add.at(tally.chance, rows, selection.chance)
        for layer, values in self._values.items():
            mass, hits = (
                _grained(sum(part, torch.zeros(()))) for part in zip(*values, strict=True)
            )
            # the rows of a selection are distinct, so plain indexing adds each of them once
            tally.target[*rows, layer] += mass[: len(hits)]
            tally.control[*rows, layer] += mass[len(hits) :]
            tally.hits[*rows, layer] += hits

    def _add_sinks(self, tally: Tally, row: int) -> None:
        """Add the late queries of windows of text, each to the block that it lies in."""
        is_text: list[bool] = []
        blocks: list[int] = []
        for tile in self._late:
            number = tile.windows.start
            window = self._batch.windows[number]
            is_text.append(window.stimulus == TEXT.name)
            if window.stimulus == TEXT.name:
                last_query = tile.queries.stop - 1
                block_of_query = self._batch.blocks_of_queries(number)
                blocks.append(block_of_query[last_query])
        np.add.at(tally.queries[:, row], blocks, LATE)
        for layer, sinks in self._sinks.items():
            mass = _grained(sinks.mass)[is_text]
            other = _grained(sinks.other)[is_text]
            np.add.at(tally.target[:, row, layer], blocks, mass)
            np.add.at(tally.control[:, row, layer], blocks, other)


def _grained(sums: Tensor) -> Float[ndarray, "row head"]:
    return grained(sums.cpu().double().numpy())


def cell_reader(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> MakeReader:
    """Reader of a batch's cells."""
    selection = select(batch, window_pairs, tiles, config)
    known = known_columns(batch.windows).to(config.device)
    return partial(CellReader, batch, selection, known, logarithms=config.logarithms)
