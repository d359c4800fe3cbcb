"""The Jensen–Shannon divergence between heads, query by query.

All pairs of n heads are kept in scipy's condensed order: (0, 1), (0, 2), …, (n − 2, n − 1).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor


def divergences(rows: Float[Tensor, "head key"]) -> Float[ndarray, " pair"]:
    """The divergence of all pairs of heads at one query, in bits.

        JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m) = H(m) − ½ (H(p) + H(q)),  m = ½ (p + q)

    with logarithms to base 2 (Lin 1991, equations 3.1 and 4.1). 0 for heads that look at the same
    keys with the same weights, 1 for heads that never look at the same key.

    Args:
        rows: each head's attention over the keys; non-negative, a row sums to 1. In double
            precision: the divergence is a small difference of large entropies.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.double)
    >>> divergences(rows).round(3).tolist()
    [1.0, 0.311, 0.311]
    """
    own = _entropy(rows)
    # one head with all later ones: no more than heads × keys numbers exist at a time
    blocks = [
        _entropy((rows[i] + rows[i + 1 :]) / 2) - (own[i] + own[i + 1 :]) / 2
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
        sums += divergences(rows[:, row, :seen])
    return sums


def _entropy(rows: Float[Tensor, "head key"]) -> Float[Tensor, " head"]:
    """Entropy in bits. 0 · log 0 is 0: the smallest normal number stands in for 0 in the log."""
    return -(rows * rows.clamp_min(torch.finfo(rows.dtype).tiny).log2()).sum(-1)
