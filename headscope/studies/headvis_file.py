"""Content of a head's file for HeadVis: sampled sequences, histograms and token tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.printing import visible

INTERVALS = 10
STRONGEST, FAINTEST = 8, 0.005
"""Cells of a row that are written: at most so many, with at least this attention."""
TOP_PAIR = 0.1
"""Least attention of a query to its strongest key in the histogram of distances."""
LISTED, BINS = 50, 20


class SparseCells(NamedTuple):
    """The strongest cells of a pattern in the order of rows, at most `STRONGEST` of each row."""

    indices: Int[ndarray, " cell"]
    """query × length + key."""
    values: Float[ndarray, " cell"]
    """Attention, in [`FAINTEST`, 1]."""


def strongest_cells(attention: Float[Tensor, "query key"], first: int, length: int) -> SparseCells:
    """The strongest cells of some rows, including the first token's row and column.

    Args:
        attention: of the queries from position `first` on.
        first: position of the first query.
        length: tokens of the window.
    """
    top = attention.topk(min(STRONGEST, attention.shape[1]), -1)
    row, column = (top.values >= FAINTEST).nonzero(as_tuple=True)
    index = (first + row) * length + top.indices[row, column]
    order = index.argsort()
    values = top.values[row, column][order].cpu().numpy()
    return SparseCells(index[order].cpu().numpy(), values)


def top_pairs(cells: SparseCells, length: int) -> Int[ndarray, "pair 2"]:
    """Each query and its strongest key, both after the first token, with at least `TOP_PAIR`."""
    query, key = np.divmod(cells.indices, length)
    strong = (query > 0) & (key > 0) & (cells.values >= TOP_PAIR)
    query, key, value = query[strong], key[strong], cells.values[strong]
    order = np.lexsort((key, -value, query))
    _, best = np.unique(query[order], return_index=True)
    return np.stack([query[order][best], key[order][best]], 1)


def token_table(
    sequences: Iterable[tuple[SparseCells, Sequence[str]]], *, keys: bool
) -> list[dict[str, Any]]:
    """Tokens with the largest share of attention as keys, or as queries, without the first token.

    Args:
        sequences: cells and tokens of each sequence.
        keys: True for key tokens, False for query tokens.
    """
    sums: dict[str, float] = {}
    for cells, tokens in sequences:
        query, key = np.divmod(cells.indices, len(tokens))
        inner = (query > 0) & (key > 0)
        at = np.bincount((key if keys else query)[inner], cells.values[inner], len(tokens))
        for position in at.nonzero()[0].tolist():
            sums[tokens[position]] = sums.get(tokens[position], 0.0) + float(at[position])
    total = sum(sums.values())
    ranked = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:LISTED]
    return [{"token": token, "weight": round(value / total, 4)} for token, value in ranked]


def intervals(largest: Float[ndarray, " sequence"]) -> Int[ndarray, " sequence"]:
    """The tenth of each sequence by its largest attention: 1 for the weakest, 10 for the strongest.

    >>> intervals(np.array([0.3, 0.9, 0.1, 0.5, 0.7])).tolist()
    [4, 10, 2, 6, 8]
    """
    count = len(largest)
    rank = np.empty(count, np.int64)
    rank[np.argsort(largest, kind="stable")] = np.arange(1, count + 1)
    return -(-rank * INTERVALS // count)


def sample_sequences(
    largest: Float[ndarray, " sequence"], rng: np.random.Generator, per_interval: int
) -> list[tuple[int, int]]:
    """Numbers of sequences picks from each tenth, with the tenth; the strongest first."""
    tenths = intervals(largest)
    sample: list[tuple[int, int]] = []
    for tenth in range(INTERVALS, 0, -1):
        members = np.flatnonzero(tenths == tenth)
        if len(members):
            picks = rng.choice(members, min(per_interval, len(members)), replace=False).tolist()
            sample += [(i, tenth) for i in sorted(picks, key=lambda i: (-largest[i], i))]
    return sample


def head_file(
    windows: Sequence[Window],
    largest: Float[ndarray, " window"],
    sample: Sequence[tuple[int, int]],
    cells: Mapping[int, SparseCells],
) -> dict[str, Any]:
    """Content of `heads/L{layer}H{head}.json`.

    Args:
        windows: all windows.
        largest: the head's largest attention in each.
        sample: numbers of the windows that are written, with their tenths.
        cells: the head's strongest cells in each of these windows.
    """
    tokens = {number: list(map(visible, windows[number].strings)) for number, _ in sample}
    sequences = [
        {
            "sequence_id": number,
            "interval": tenth,
            "tokens": tokens[number],
            "attention_indices": cells[number].indices.tolist(),
            "attention_values": rounded(cells[number].values),
            "seq_len": len(windows[number]),
            "max_activation": rounded(largest[number]),
        }
        for number, tenth in sample
    ]
    pairs = np.concatenate([top_pairs(cells[number], len(tokens[number])) for number in tokens])
    edges = [0, 1]
    while edges[-1] < max(map(len, windows)):
        edges.append(2 * edges[-1])
    distances, _ = np.histogram(abs(pairs[:, 0] - pairs[:, 1]), edges)
    maxima, bins = np.histogram(largest.clip(0, 1), BINS, (0, 1))
    texts = [(cells[number], tokens[number]) for number in tokens]
    return {
        "sequences": sequences,
        "qk_distance_histogram": {"bin_edges": edges, "bin_values": distances.tolist()},
        "top_query_tokens": token_table(texts, keys=False),
        "top_key_tokens": token_table(texts, keys=True),
        "histogram": {"bin_edges": rounded(bins), "bin_values": maxima.tolist()},
        "statistics": {
            "mean_max_activation": rounded(largest.mean()),
            "n_samples": len(windows),
            "n_tokens": sum(map(len, windows)),
        },
    }


def rounded(values: Any) -> Any:
    """Numbers with four decimals.

    >>> rounded(np.float32(0.1235)), rounded([-0.00001, 2])
    (0.1235, [0.0, 2.0])
    """
    # single precision has more decimals when written; + 0.0 turns −0 into 0
    return (np.round(np.asarray(values, np.float64), 4) + 0.0).tolist()
