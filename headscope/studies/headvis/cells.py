"""The strongest cells of a head's patterns, and what they say together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.studies.headvis.rows import HIGH

IN_A_ROW, FAINTEST = 8, 0.005
"""Most cells that are kept of a row, and the least attention of one."""
LISTED = 50
"""Tokens of a table."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The kept cells of a pattern in the order of rows: at most `IN_A_ROW` of each."""

    index: Int[ndarray, " cell"]
    """query × length + key."""
    value: Float[ndarray, " cell"]
    """Attention, in [`FAINTEST`, 1]."""

    @classmethod
    def joined(cls, parts: Sequence[Cells]) -> Cells:
        """Those of several stretches of queries."""
        return cls(
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.value for part in parts]),
        )


def strongest_cells(attention: Float[Tensor, "query key"], first: int, length: int) -> Cells:
    """The cells of some rows that are kept; the first token's row and column are among them.

    Args:
        attention: of the queries from `first` on.
        first: the position of the first query.
        length: of the window.
    """
    top = attention.topk(min(IN_A_ROW, attention.shape[1]), -1)
    row, place = (top.values >= FAINTEST).nonzero(as_tuple=True)
    index = (first + row) * length + top.indices[row, place]
    order = index.argsort()
    found = top.values[row, place][order].cpu().numpy()
    return Cells(index[order].cpu().numpy(), found)


def top_pairs(cells: Cells, length: int) -> Int[ndarray, "pair 2"]:
    """Each query with its strongest key, the first token left out, where that has `HIGH` or more.

    The same pairs as `rows.facts` sees: so strong a cell is always kept.
    """
    query, key = np.divmod(cells.index, length)
    own = (query > 0) & (key > 0) & (cells.value >= HIGH)
    query, key, value = query[own], key[own], cells.value[own]
    # of equally strong keys the first, as the maximum of a row has it
    order = np.lexsort((key, -value, query))
    _, best = np.unique(query[order], return_index=True)
    return np.stack([query[order][best], key[order][best]], 1)


def edges(longest: int) -> list[int]:
    """Of a histogram of distances: 0, 1, 2, 4 … until beyond the last of so long a window.

    >>> edges(9)
    [0, 1, 2, 4, 8, 16]
    """
    found = [0, 1]
    while found[-1] < longest:
        found.append(2 * found[-1])
    return found


def distance_histogram(
    cells: Iterable[tuple[Cells, int]], bin_edges: Sequence[int]
) -> dict[str, Any]:
    """How many top pairs lie so far apart.

    Args:
        cells: of each sequence, with its length.
        bin_edges: from `edges`.
    """
    counts = np.zeros(len(bin_edges) - 1, np.int64)
    for own, length in cells:
        pairs = top_pairs(own, length)
        counts += np.histogram(np.abs(pairs[:, 0] - pairs[:, 1]), bin_edges)[0]
    return {"bin_edges": list(bin_edges), "bin_values": counts.tolist()}


def token_table(
    cells: Iterable[tuple[Cells, Sequence[str]]], *, keys: bool
) -> list[dict[str, Any]]:
    """Tokens by their share of the kept attention, without the first token's row and column.

    Args:
        cells: of each sequence, with its tokens.
        keys: whether to take the token that is looked at, or the one that looks.

    Returns:
        The strongest `LISTED`, as HeadVis' tables have them; of equal ones the first by name.
    """
    sums: dict[str, float] = {}
    for own, tokens in cells:
        query, key = np.divmod(own.index, len(tokens))
        inner = (query > 0) & (key > 0)
        at = np.bincount((key if keys else query)[inner], own.value[inner], len(tokens))
        for place in at.nonzero()[0].tolist():
            sums[tokens[place]] = sums.get(tokens[place], 0.0) + float(at[place])
    total = sum(sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    return [{"token": token, "weight": round(value / total, 4)} for token, value in ranked]
