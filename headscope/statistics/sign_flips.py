"""Randomisation test of a paired difference: signs of blocks of documents flipped.

Were a head's attention at contested queries no more on the target than on what the baseline
heuristic picks, the two could change places in every document alike. The share of all such changes
that leave a difference at least as large is the p value (Fisher 1935; Edgington & Onghena 2007,
chapter 5). It supposes no distribution, and holds at any number of queries.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray

EXACT_BLOCKS = 12
"""Up to so many blocks all changes of signs are tried; with more, as many as these have are drawn,
the observed signs among them (Phipson & Smyth 2010)."""
_ROUNDING = 1e-9
"""Share of a head's sums below which two sums are the same."""


def sign_flip_p(
    differences: Float[ndarray, "block head"], seed: int = 0
) -> Float[ndarray, " head"]:
    """One-sided p value of a sum of differences being above 0, in (0, 1].

    Args:
        differences: in each block the sum of a head's attention on targets less that on rivals; a
            block without a query is none and must be left out.
        seed: seeds the draws where the blocks are too many to try all.

    >>> sign_flip_p(np.array([[3.0], [1.0], [2.0]])).tolist()  # of 8 changes none is as large
    [0.125]
    >>> sign_flip_p(np.array([[3.0], [-1.0], [2.0]])).tolist()  # +−+ and +++ are
    [0.25]
    """
    signs = _signs(len(differences), seed)
    sums = signs @ differences
    tolerance = _ROUNDING * np.abs(differences).sum(0)
    return np.asarray((sums >= sums[0] - tolerance).mean(0))


def least_p(blocks: int) -> float:
    """The smallest p value that so many blocks can give.

    >>> least_p(3), least_p(64) == least_p(12)
    (0.125, True)
    """
    return float(0.5 ** min(blocks, EXACT_BLOCKS))


@lru_cache(maxsize=16)  # of 2 MB at most
def _signs(blocks: int, seed: int) -> Float[ndarray, "change block"]:
    """Changes of signs, the first of them none."""
    if blocks <= EXACT_BLOCKS:
        bits = np.arange(2**blocks)[:, None] >> np.arange(blocks) & 1
    else:
        bits = np.random.default_rng([seed, blocks]).integers(0, 2, (2**EXACT_BLOCKS, blocks))
        bits[0] = 0
    return 1.0 - 2.0 * bits
