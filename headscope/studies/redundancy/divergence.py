"""The Jensen–Shannon divergence between heads, query by query, summed window by window on text.

All pairs of n heads are kept in scipy's condensed order: (0, 1), (0, 2), …, (n − 2, n − 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.progress import OnProgress
from headscope.measure.study_windows import evenly
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns


@dataclass(frozen=True, eq=False)
class Divergences:
    """The divergence of all pairs of heads, summed over the queries of each window."""

    sums: Float[ndarray, "window pair"]
    queries: Int[ndarray, " window"]
    """Queries that were read of each window."""

    @property
    def mean(self) -> Float[ndarray, " pair"]:
        """The mean over queries, in bits, in [0, 1]; comparable between texts of any length."""
        mean: Float[ndarray, " pair"] = self.sums.sum(0) / self.queries.sum()
        return mean


def read_divergences(
    model: Model, windows: Sequence[Window], queries: int, progress: OnProgress
) -> Divergences:
    """Compare all heads of all layers at up to `queries` queries of each window.

    The beginning-of-text token is no query: it sees itself alone, where all heads agree. No more
    than the sampled rows of one window and a sum per window and pair are in memory.
    """
    total = sum(map(len, windows))
    sums, counts, done = [], [], 0
    for window in windows:
        positions = 1 + evenly(len(window) - 1, queries)
        sums.append(divergence_sums(sampled_rows(model, window, positions), positions))
        counts.append(len(positions))
        done += len(window)
        progress(done, total)
    return Divergences(np.stack(sums), np.array(counts))


def sampled_rows(
    model: Model, window: Window, queries: Int[ndarray, " query"]
) -> Float[Tensor, "head query key"]:
    """Each head's attention at these queries of one window, layer after layer, rows summing to 1.

    Normalised again in double precision: half-precision rows sum to 1 only nearly.
    """
    layers: list[Tensor] = []

    def add(attention: LayerAttention) -> None:
        (pattern,) = attention.probabilities()
        layers.append(pattern[0, :, torch.from_numpy(queries).to(pattern.device)].cpu().double())

    stream_attention(model, [window], whole_patterns, add)
    rows = torch.cat(layers)
    return rows / rows.sum(-1, keepdim=True)


def head_divergences(rows: Float[Tensor, "head key"]) -> Float[ndarray, " pair"]:
    """The divergence of all pairs of heads at one query, in bits.

        JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m) = H(m) − ½ (H(p) + H(q)),  m = ½ (p + q)

    with logarithms to base 2 (Lin 1991, equations 3.1 and 4.1). 0 for heads that look at the same
    keys with the same weights, 1 for heads that never look at the same key.

    Args:
        rows: each head's attention over the keys; non-negative, a row sums to 1. In double
            precision: the divergence is a small difference of large entropies.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.double)
    >>> head_divergences(rows).round(3).tolist()
    [1.0, 0.311, 0.311]
    """
    entropies = _entropy(rows)
    # one head with all later ones: no more than heads × keys numbers exist at a time
    blocks = [
        _entropy((rows[i] + rows[i + 1 :]) / 2) - (entropies[i] + entropies[i + 1 :]) / 2
        for i in range(len(rows) - 1)
    ]
    flat: Float[ndarray, " pair"] = torch.cat(blocks).numpy() if blocks else np.empty(0)
    return flat.clip(0, 1)


def divergence_sums(
    rows: Float[Tensor, "head query key"], queries: Int[ndarray, " query"]
) -> Float[ndarray, " pair"]:
    """The divergence of all pairs of heads summed over queries, as Clark et al. 2019 (section 6).

    Args:
        rows: each head's attention at each query over the keys of a window.
        queries: the position of each query; keys after it are not read where they hold no
            attention, as in a causal model.
    """
    heads = rows.shape[0]
    sums = np.zeros(heads * (heads - 1) // 2)
    for row, query in enumerate(queries.tolist()):
        seen = None if rows[:, row, query + 1 :].any() else query + 1  # an encoder sees all
        sums += head_divergences(rows[:, row, :seen])
    return sums


def _entropy(rows: Float[Tensor, "head key"]) -> Float[Tensor, " head"]:
    """Entropy in bits. 0 · log 0 is 0: the smallest normal number stands in for 0 in the log."""
    return -(rows * rows.clamp_min(torch.finfo(rows.dtype).tiny).log2()).sum(-1)
