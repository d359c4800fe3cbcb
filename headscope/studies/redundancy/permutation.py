"""A permutation test: are heads of the same label closer than chance would have them?"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

SHUFFLES = 1_000


def permutation_p(
    distances: Float[ndarray, " pair"],
    considered: Bool[ndarray, " pair"],
    labels: Int[ndarray, " head"],
    strata: Int[ndarray, " head"],
    rng: np.random.Generator,
) -> float:
    """How often heads whose labels are shuffled are as close to those of their own label.

    The statistic is the mean distance of the considered pairs with the same label minus that of
    the others. Labels are shuffled within strata, 1,000 times; (k + 1) / 1,001 with k shuffles at
    or below what is found, never 0 (Phipson and Smyth 2010).
    """
    one, other = (index[considered] for index in np.triu_indices(len(labels), 1))
    distances = distances[considered]
    movable = np.zeros(len(labels), bool)
    movable[np.union1d(one, other)] = True
    # a head that is in no considered pair keeps its label
    strata = np.where(movable, strata, strata.max() + 1 + np.arange(len(labels)))
    order = np.argsort(strata, kind="stable")

    def apart(own: Int[ndarray, " head"]) -> float:
        equal = own[one] == own[other]
        return float(distances[equal].mean() - distances[~equal].mean())

    found, below = apart(labels), 0
    for _ in range(SHUFFLES):
        drawn = np.lexsort((rng.random(len(labels)), strata))
        shuffled = labels.copy()
        shuffled[order] = labels[drawn]
        # the same pairs summed in another order differ in their last digits
        below += apart(shuffled) <= found + 1e-12
    return (below + 1) / (SHUFFLES + 1)
