"""What is read of each layer: every row of short windows; of long ones some rows and single cells.

A row of 8,192 keys for each of 8,192 queries would cost more than the model itself. Hits need whole
rows, since another key can be larger: those of `headscope.relations.asked.row_queries`, and one of
every relation that has none among them. Other cells are a product of one query and one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.models.engines.engine import Cells, Look, Picked, Tile
from headscope.relations.asked import LONG, row_queries, turns
from headscope.relations.pairs import Pairs, distinct_values

ROW_CELLS = 2**20
"""Cells of some rows that exist at once, all heads together; see the fused engine's tiles."""


def hit_shares(window: Window, targets: Pairs) -> Float[ndarray, " pair"]:
    """What a hit of each target counts: 1, and in long windows more for those that are asked.

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
    chosen = np.isin(queries, row_queries(window))
    if not chosen.any():
        chosen[turn.argmin()] = True
    own = chosen[np.searchsorted(queries, targets.owner)]
    return np.where(own, len(queries) / chosen.sum(), 0.0)


def looks_at(
    windows: Sequence[Window],
    tiles: Sequence[Tile],
    hits: Int[ndarray, " hit"],
    cells: Int[ndarray, " cell"],
    *,
    heads: int,
) -> tuple[Look, ...]:
    """What is read of a batch.

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
    found: list[Look] = []
    for i, window in enumerate(windows):
        start, end = np.searchsorted(cells, [i * length**2, (i + 1) * length**2])
        query, key = np.divmod(cells[start:end] - i * length**2, length)
        needed = hits[(hits >= i * length) & (hits < (i + 1) * length)] - i * length
        whole = distinct_values(np.concatenate([needed, row_queries(window)]))
        found += _picked(i, whole, heads)
        single = ~np.isin(query, whole)
        if single.any():
            found.append(Cells(i, query[single], key[single]))
    return tuple(found)


def _picked(window: int, queries: Int[ndarray, " query"], heads: int) -> Iterator[Picked]:
    """The rows in parts of at most about a million cells."""
    start = 0
    while start < len(queries):
        size = 1 + np.arange(len(queries) - start)
        fits = size * (queries[start:] + 1) * heads <= ROW_CELLS
        stop = start + max(1, int(fits.sum()))
        yield Picked(window, queries[start:stop])
        start = stop


def owner_of(
    looks: Sequence[Look], cells: Int[ndarray, " cell"], length: int
) -> Int[ndarray, " cell"]:
    """Of each cell, flat as `[window query key]`, the look that shows it."""
    rows, row = cells // length, np.full(int(cells.max(initial=0)) // length + 1, -1)
    for number, look in enumerate(looks):
        if isinstance(look, Cells):
            own = look.window * length + distinct_values(look.queries)
        elif isinstance(look, Picked):
            own = look.window * length + look.queries
        else:
            windows = np.arange(look.windows.start, look.windows.stop)
            queries = np.arange(look.queries.start, look.queries.stop)
            own = (windows[:, None] * length + queries).ravel()
        row[own[own < len(row)]] = number
    return np.asarray(row[rows])
