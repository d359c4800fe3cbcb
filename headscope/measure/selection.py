"""The cells of the relations in a window, and the attention that is read for them.

Every row of a short window is read; of a long one some rows and single cells. A row of 8,192 keys
for each of 8,192 queries would cost more than the model itself. Hits need whole rows, since another
key can be larger: those of `headscope.relations.query_sampling.row_queries`, and one of every
relation that has none among them. Other cells are a product of one query and one key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.models.engines.engine import Entries, PatternRegion, QueryRows, Tile
from headscope.relations.pairs import Pairs, distinct_values
from headscope.relations.parts import is_compared
from headscope.relations.query_sampling import LONG, row_queries, turns
from headscope.relations.relation import PairSet, Relation
from headscope.relations.window_pairs import WindowPairs

ROW_CELLS = 2**20
"""Cells of some rows that exist at once, all heads together; see the fused engine's tiles."""


def find_all(
    window_pairs: WindowPairs, relations: Sequence[Relation], seed: int
) -> Iterator[tuple[int, PairSet]]:
    """Cells of each relation that has some in a window, with the place of the relation.

    Draws are seeded by the run's seed, the relation and the window's own text.
    """
    text = _number("\0".join(window_pairs.window.strings))
    for index, relation in enumerate(relations):
        if is_compared(relation):
            continue  # they have a reader of their own
        # each relation has its own stream: leaving a type out changes no other type's draws
        result = window_pairs.cells(relation, [seed, text, _relation_number(relation.id)])
        if result is not None:
            yield index, result


@lru_cache
def _relation_number(name: str) -> int:
    return _number(name)


def _number(text: str) -> int:
    """A number that stands for a text, on every machine the same."""
    content = text.encode("utf-8", "replace")
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest)


def hit_shares(window: Window, targets: Pairs) -> Float[ndarray, " pair"]:
    """The weight of a hit of each target: 1, and in long windows more for those that are asked.

    The mean over the queries whose rows are read, times the number of all queries: of n queries of
    which k are asked each counts n/k. With none among them the first in the window's order is.

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
    cells = distinct_values(cells)
    requests: list[PatternRegion] = []
    for i, window in enumerate(windows):
        first_cell = i * length**2
        start, end = np.searchsorted(cells, [first_cell, first_cell + length**2])
        query, key = np.divmod(cells[start:end] - first_cell, length)
        needed = hits[hits // length == i] % length
        whole_rows = distinct_values(np.concatenate([needed, row_queries(window)]))
        requests += _picked(i, whole_rows, heads)
        single = ~np.isin(query, whole_rows)
        if single.any():
            requests.append(Entries(i, query[single], key[single]))
    return tuple(requests)


def _picked(window: int, queries: Int[ndarray, " query"], heads: int) -> Iterator[QueryRows]:
    """The rows in parts of at most about a million cells."""
    start = 0
    while start < len(queries):
        remaining = queries[start:]
        rows = 1 + np.arange(len(remaining))
        # rows that are read together are as wide as the last of them
        cells = rows * (remaining + 1) * heads
        count = int((cells <= ROW_CELLS).sum())
        stop = start + max(1, count)
        yield QueryRows(window, queries[start:stop])
        start = stop


def request_of_cell(
    requests: Sequence[PatternRegion], cells: Int[ndarray, " cell"], length: int
) -> Int[ndarray, " cell"]:
    """The request that reads each cell, flat as `[window query key]`."""
    row = cells // length
    last_row = int(row.max(initial=0))
    request_of_row = np.full(last_row + 1, -1)
    for number, request in enumerate(requests):
        rows_read = _rows_read(request, length)
        rows_with_cells = rows_read[rows_read <= last_row]
        request_of_row[rows_with_cells] = number
    return np.asarray(request_of_row[row])


def _rows_read(request: PatternRegion, length: int) -> Int[ndarray, " row"]:
    """The rows that a request reads, flat as `[window query]`."""
    if isinstance(request, Entries):
        return request.window * length + distinct_values(request.queries)
    if isinstance(request, QueryRows):
        return request.window * length + request.queries
    windows = np.arange(request.windows.start, request.windows.stop)
    queries = np.arange(request.queries.start, request.queries.stop)
    rows = windows[:, None] * length + queries
    return np.asarray(rows.ravel())
