"""The second pass: the strongest cells of patterns that were drawn, and what they say together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.studies.headvis.row_metrics import HIGH
from headscope.studies.headvis.scan import Advance, HeadSelection, read_rows

IN_A_ROW, FAINTEST = 8, 0.005
"""Most cells that are kept of a row, and the least attention of one."""
LISTED = 50
"""Tokens of a table."""


@dataclass(frozen=True, eq=False)
class SparseCells:
    """The kept cells of a pattern in the order of rows: at most `IN_A_ROW` of each."""

    index: Int[ndarray, " cell"]
    """query × length + key."""
    value: Float[ndarray, " cell"]
    """Attention, in [`FAINTEST`, 1]."""


def read_patterns(
    model: Model,
    windows: Sequence[Window],
    selection: HeadSelection,
    numbers: Sequence[Collection[int]],
    advance: Advance,
) -> list[dict[int, SparseCells]]:
    """Read the strongest cells of each window that a head needs, for every head.

    Args:
        model: the model.
        windows: all that there are.
        selection: the heads.
        numbers: of each head the numbers of windows.
        advance: told the tokens of each window when they are done.
    """
    tiles: list[dict[int, list[SparseCells]]] = [{} for _ in selection.heads]

    def take(number: int, layer: int, places: slice, rows: Tensor, first: int) -> None:
        for head, pattern in zip(range(places.start, places.stop), rows, strict=True):
            if number in numbers[head]:
                cells = strongest_cells(pattern.exp(), first, len(windows[number]))
                tiles[head].setdefault(number, []).append(cells)

    of_any_head = {number for head_numbers in numbers for number in head_numbers}
    read_rows(model, windows, selection, take, advance, numbers=of_any_head)
    return [{number: _joined(parts) for number, parts in head.items()} for head in tiles]


def strongest_cells(attention: Float[Tensor, "query key"], first: int, length: int) -> SparseCells:
    """The cells of some rows that are kept; the first token's row and column are among them.

    Args:
        attention: of the queries from `first` on.
        first: the position of the first query.
        length: of the window.
    """
    top = attention.topk(min(IN_A_ROW, attention.shape[1]), -1)
    row, column = (top.values >= FAINTEST).nonzero(as_tuple=True)
    index = (first + row) * length + top.indices[row, column]
    order = index.argsort()
    values = top.values[row, column][order].cpu().numpy()
    return SparseCells(index[order].cpu().numpy(), values)


def top_pairs(cells: SparseCells, length: int) -> Int[ndarray, "pair 2"]:
    """Each query with its strongest key, the first token left out, where that has `HIGH` or more.

    The same pairs as `row_numbers` sees: so strong a cell is always kept.
    """
    query, key = np.divmod(cells.index, length)
    strong = (query > 0) & (key > 0) & (cells.value >= HIGH)
    query, key, value = query[strong], key[strong], cells.value[strong]
    # of equally strong keys the first, as the maximum of a row has it
    order = np.lexsort((key, -value, query))
    _, best = np.unique(query[order], return_index=True)
    return np.stack([query[order][best], key[order][best]], 1)


def edges(longest: int) -> list[int]:
    """Bounds of a histogram of distances: 0, 1, 2, 4 … until beyond the last of so long a window.

    >>> edges(9)
    [0, 1, 2, 4, 8, 16]
    """
    bounds = [0, 1]
    while bounds[-1] < longest:
        bounds.append(2 * bounds[-1])
    return bounds


def distance_histogram(
    cells: Iterable[tuple[SparseCells, int]], bin_edges: Sequence[int]
) -> dict[str, Any]:
    """Counts of top pairs by how far apart they lie.

    Args:
        cells: of each sequence, with its length.
        bin_edges: from `edges`.
    """
    counts = np.zeros(len(bin_edges) - 1, np.int64)
    for sequence, length in cells:
        pairs = top_pairs(sequence, length)
        counts += np.histogram(np.abs(pairs[:, 0] - pairs[:, 1]), bin_edges)[0]
    return {"bin_edges": list(bin_edges), "bin_values": counts.tolist()}


def token_table(
    cells: Iterable[tuple[SparseCells, Sequence[str]]], *, keys: bool
) -> list[dict[str, Any]]:
    """Tokens by their share of the kept attention, without the first token's row and column.

    Args:
        cells: of each sequence, with its tokens.
        keys: whether to take the token that is looked at, or the one that looks.

    Returns:
        The strongest `LISTED`, as HeadVis' tables have them; of equal ones the first by name.
    """
    sums: dict[str, float] = {}
    for sequence, tokens in cells:
        query, key = np.divmod(sequence.index, len(tokens))
        inner = (query > 0) & (key > 0)
        at = np.bincount((key if keys else query)[inner], sequence.value[inner], len(tokens))
        for position in at.nonzero()[0].tolist():
            sums[tokens[position]] = sums.get(tokens[position], 0.0) + float(at[position])
    total = sum(sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    return [{"token": token, "weight": round(value / total, 4)} for token, value in ranked]


def _joined(tiles: Sequence[SparseCells]) -> SparseCells:
    return SparseCells(
        np.concatenate([cells.index for cells in tiles]),
        np.concatenate([cells.value for cells in tiles]),
    )
