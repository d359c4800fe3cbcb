"""The cells of the relations in a batch, and the attention that is read for them.

`select` gives a `Selection`: the rows and cells to read, and how their values add up. A relation's
function finds the targets of a window, and its control draws the other cells (`find_all`).

Every row of a short window is read; of a long one some rows and single cells. A row of 8,192 keys
for each of 8,192 queries would cost more than the model itself. Hits need whole rows, since another
key can be larger: those of `headscope.relations.query_sampling.row_queries`, and one of every
relation that has none among them. Other cells are a product of one query and one key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.layer_reader import ReaderConfig
from headscope.measure.sparse import EntryReduction, TileReduction, summing_matrix
from headscope.measure.tally import grained
from headscope.models.engines.engine import Entries, PatternRegion, QueryRows, Tile
from headscope.relations.effects import of_attention
from headscope.relations.pairs import Pairs, distinct_values, no_pairs
from headscope.relations.parts import is_compared
from headscope.relations.query_sampling import LONG, row_queries, turns
from headscope.relations.relation import PairSet, Relation
from headscope.relations.window_pairs import WindowPairs

ROW_CELLS = 2**20
"""Cells of some rows that exist at once, all heads together; see the fused engine's tiles."""


@dataclass(frozen=True, eq=False)
class SelectionPart:
    """Attention that is read of each layer at once, and how its values add up."""

    request: PatternRegion
    reduction: TileReduction | EntryReduction
    """How the values add up: of rows with hits, or of single cells."""


@dataclass(frozen=True, eq=False)
class Selection:
    """All cells that the relations of a batch look at; a row for each block and relation."""

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    """Place among the relations of attention, which come first in `Tally.relations`."""
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    is_compared: Bool[ndarray, " row"]
    """Rows of hard or of easy queries, of which hits alone are read here; their queries are counted
    where they are compared."""
    parts: tuple[SelectionPart, ...]


def select(
    batch: Batch, window_pairs: Sequence[WindowPairs], tiles: Sequence[Tile], config: ReaderConfig
) -> Selection | None:
    """Find and draw all pairs of a batch; None if absent.

    Draws are seeded by the run's seed and the window's own text, so that they do not depend on
    batches or on the order of documents.
    """
    relations = of_attention(config.relations)
    pairs_in_windows = []
    for window in range(len(batch.windows)):
        for relation, pair_cells in find_all(window_pairs[window], relations, config.seed):
            # the sample of rows is drawn from the whole window, however many blocks it lies in
            shares = hit_shares(batch.windows[window], pair_cells.targets)
            for block, in_block in batch.blocks_of(window, pair_cells.targets.query):
                pairs_in_windows.append(
                    _PairsInWindow(
                        window=window,
                        block=block,
                        relation=relation,
                        pairs=_of_block(batch, window, block, pair_cells),
                        hit_shares=shares[in_block],
                    )
                )
    if not pairs_in_windows:
        return None
    # a row of the sums for each block and relation
    numbers = [
        in_window.block * len(relations) + in_window.relation for in_window in pairs_in_windows
    ]
    rows, row_of = np.unique(numbers, return_inverse=True)
    queries = np.zeros(len(rows), np.int64)
    chance = np.zeros(len(rows))
    is_compared_relation = np.array([is_compared(relation) for relation in relations])
    for row, in_window in zip(row_of, pairs_in_windows, strict=True):
        if is_compared_relation[in_window.relation]:
            continue
        targets = in_window.pairs.targets
        queries[row] += len(targets.queries)
        # the mass of a head that spreads evenly over the keys of each row
        keys_seen = batch.windows[in_window.window].keys_seen(targets.query)
        chance[row] += (targets.weight / keys_seen).sum()
    # the cells of all pairs, and those of targets that can be hits
    shape = _Shape(len(rows), max(map(len, batch.windows)), config.heads)
    cells = _cells(pairs_in_windows, row_of, shape)
    hits = _hits(pairs_in_windows, row_of, shape)
    needed_rows = hits.cell // shape.length
    requests = row_requests(batch.windows, tiles, needed_rows, cells.cell, heads=config.heads)
    # what is read at each request, and how its cells are summed
    parts = []
    for request, reduction in zip(requests, _reductions(requests, cells, hits, shape), strict=True):
        parts.append(SelectionPart(request, reduction.to(config.device)))
    return Selection(
        block=rows // len(relations),
        relation=rows % len(relations),
        queries=queries,
        chance=grained(chance),
        is_compared=is_compared_relation[rows % len(relations)],
        parts=tuple(parts),
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
) -> Iterator[TileReduction | EntryReduction]:
    """The reduction of each request's values; every cell belongs to one of them."""
    cell_numbers = _split(request_of_cell(requests, cells.cell, shape.length), len(requests))
    hit_numbers = _split(request_of_cell(requests, hits.cell, shape.length), len(requests))
    for number, request in enumerate(requests):
        cells_read = cells.take(cell_numbers[number])
        if isinstance(request, Entries):
            row = request.window * shape.length + request.queries
            flat = row * shape.length + request.keys
            yield EntryReduction(cells_read.matrix(2 * shape.rows, flat))
        else:
            hits_read = hits.take(hit_numbers[number])
            yield _tile_reduction(request, cells_read, hits_read, shape)


def _split(owner: Int[ndarray, " cell"], count: int) -> list[ndarray]:
    """Numbers of the cells of each owner."""
    order = np.argsort(owner, kind="stable")
    starts = np.searchsorted(owner[order], np.arange(1, count))
    return np.split(order, starts)


def _tile_reduction(
    request: Tile | QueryRows, all_cells: _Side, targets: _Side, shape: _Shape
) -> TileReduction:
    length = shape.length
    heads = shape.heads
    # each cell is read once, however many relations need it
    cells = distinct_values(all_cells.cell)
    target_cells = distinct_values(targets.cell)
    queries = request.shape[1]
    head = torch.arange(heads) * queries

    def row(cell: ndarray) -> Int[ndarray, " cell"]:
        """Place of a cell's query among the rows of head 0."""
        window, query = np.divmod(cell // length, length)
        if isinstance(request, QueryRows):
            return np.searchsorted(request.queries, query)
        first_row = (window - request.windows.start) * heads * queries
        return np.asarray(first_row + query - request.queries.start)

    # flat places of the cells for head 0, and from there for each head
    of_first_head = torch.from_numpy(row(cells) * request.keys + cells % length)
    flat = of_first_head[:, None] + head * request.keys
    target_places = torch.from_numpy(np.searchsorted(cells, target_cells))
    target_rows = torch.from_numpy(row(target_cells))
    return TileReduction(
        cells=flat,
        targets=flat[target_places],
        target_rows=target_rows[:, None] + head,
        mass=all_cells.matrix(2 * shape.rows, cells),
        hit=targets.matrix(shape.rows, target_cells),
    )


def find_all(
    window_pairs: WindowPairs, relations: Sequence[Relation], seed: int
) -> Iterator[tuple[int, PairSet]]:
    """Cells of each relation that has some in a window, with the place of the relation.

    Draws are seeded by the run's seed, the relation and the window's own text.
    """
    text = _number("\0".join(window_pairs.window.strings))
    for index, relation in enumerate(relations):
        if is_compared(relation):
            if window_pairs.window.stimulus not in relation.stimuli:
                continue
            targets = window_pairs.targets(relation)
            if not len(targets):
                continue
            # a query without another candidate is not compared: its hit would have no query to
            # divide by
            compared = relation.candidates_in(window_pairs).queries
            targets = targets.of_queries(compared, len(window_pairs.window))
            # no controls: another reader compares targets with candidates, and here they compete
            # with every key of their rows
            if len(targets):
                yield index, PairSet(targets, no_pairs())
            continue
        # each relation has its own stream: leaving a type out changes no other type's draws
        result = window_pairs.cells(relation, [seed, text, _relation_number(relation.id)])
        if result is not None:
            yield index, result


def _number(text: str) -> int:
    """A number that stands for a text, on every machine the same."""
    content = text.encode("utf-8", "replace")
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest)


_relation_number = lru_cache(_number)
"""The number of a relation's name; each comes once in every window."""


def hit_shares(window: Window, targets: Pairs) -> Float[ndarray, " pair"]:
    """The weight of a hit of each target: 1, and in long windows more where rows are read.

    In a long window whole rows are read at a sample of positions. If k of a relation's n queries
    are in the sample, a hit at each of them counts n/k, so that shares add up to n. If none is,
    the query that comes first in the window's random order is read instead.

    >>> from headscope.relations.pairs import pairs
    >>> window = Window("w", np.arange(600), ("a",) * 600)
    >>> shares = hit_shares(window, pairs(np.arange(1, 600), np.arange(599)))
    >>> int((shares > 0).sum()), float(shares.sum().round(6))
    (256, 599.0)
    """
    if len(window) <= LONG:
        return np.ones(len(targets))
    queries = targets.queries
    turn = turns(window)[queries]
    read_whole = np.isin(queries, row_queries(window))
    if not read_whole.any():
        read_whole[turn.argmin()] = True
    pair_read = read_whole[np.searchsorted(queries, targets.owner)]
    return np.where(pair_read, len(queries) / read_whole.sum(), 0.0)


def row_requests(
    windows: Sequence[Window],
    tiles: Sequence[Tile],
    hits: Int[ndarray, " hit"],
    cells: Int[ndarray, " cell"],
    *,
    heads: int,
) -> tuple[PatternRegion, ...]:
    """The rows and cells of a batch that are read.

    Args:
        windows: the batch's.
        tiles: all of its rows, which are read where no window is long.
        hits: rows that are needed whole, flat as `[window query]`.
        cells: all cells, flat as `[window query key]`; the batch is as long as its longest window.
        heads: of a layer.
    """
    length = max(map(len, windows))
    if length <= LONG:
        return tuple(tiles)
    # of long windows only the rows and cells that relations need
    cells = distinct_values(cells)
    requests: list[PatternRegion] = []
    for i, window in enumerate(windows):
        first_cell = i * length**2
        start, end = np.searchsorted(cells, [first_cell, first_cell + length**2])
        query, key = np.divmod(cells[start:end] - first_cell, length)
        needed = hits[hits // length == i] % length
        # hits need whole rows; other cells are read one by one
        whole_rows = distinct_values(np.concatenate([needed, row_queries(window)]))
        first = 0
        while first < len(whole_rows):
            # a part of about a million cells, as wide as the last of its rows
            remaining = whole_rows[first:]
            rows = 1 + np.arange(len(remaining))
            count = int((rows * (remaining + 1) * heads <= ROW_CELLS).sum())
            last = first + max(1, count)
            requests.append(QueryRows(i, whole_rows[first:last]))
            first = last
        single = ~np.isin(query, whole_rows)
        if single.any():
            requests.append(Entries(i, query[single], key[single]))
    return tuple(requests)


def request_of_cell(
    requests: Sequence[PatternRegion], cells: Int[ndarray, " cell"], length: int
) -> Int[ndarray, " cell"]:
    """The request that reads each cell, flat as `[window query key]`."""
    # each row is read by one request, whole or by its single cells, so a table finds it
    row = cells // length
    last_row = int(row.max(initial=0))
    request_of_row = np.full(last_row + 1, -1)
    for number, request in enumerate(requests):
        # flat as `[window query]`
        if isinstance(request, Entries):
            rows_read = request.window * length + distinct_values(request.queries)
        elif isinstance(request, QueryRows):
            rows_read = request.window * length + request.queries
        else:
            windows = np.arange(request.windows.start, request.windows.stop)
            queries = np.arange(request.queries.start, request.queries.stop)
            rows_read = (windows[:, None] * length + queries).ravel()
        rows_with_cells = rows_read[rows_read <= last_row]
        request_of_row[rows_with_cells] = number
    return np.asarray(request_of_row[row])
