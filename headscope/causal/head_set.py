"""Sets of heads that are changed together, and random sets that are matched to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log

import numpy as np

Head = tuple[int, int]
"""A layer and the number of a head in it."""
SETS = 20
"""Random sets that a set is compared with."""
NEAREST = 8
"""Heads most similar to a member, one of which stands in for it in a random set."""
_TINY = 1e-9  # an output may be zero


def matched_sets(
    heads: Collection[Head], norms: Mapping[Head, float], *, count: int = SETS, seed: int = 0
) -> list[tuple[Head, ...]]:
    """Random sets of as many other heads, matched by layer and norm of output.

    Each member is replaced by one of the `NEAREST` most similar heads that are not in the set and
    not in the random set yet. Distance is |Δ layer| ÷ layers + |ln of the ratio of norms|.

    Args:
        heads: the set.
        norms: mean norm of the output of every head of the model.
        count: number of random sets.
        seed: draws them.

    Returns:
        Sets of as many heads as the set, or as there are others.
    """
    rng = np.random.default_rng(seed)
    members = sorted(heads)
    others = [head for head in norms if head not in set(members)]
    candidates = {member: _by_distance(member, others, norms) for member in members}
    return [_draw(members, candidates, rng) for _ in range(count)]


def _by_distance(member: Head, others: Sequence[Head], norms: Mapping[Head, float]) -> list[Head]:
    layers = 1 + max(layer for layer, _ in norms)

    def distance(other: Head) -> float:
        depth = abs(other[0] - member[0]) / layers
        size = log((norms[other] + _TINY) / (norms[member] + _TINY))
        return depth + abs(size)

    return sorted(others, key=distance)


def _draw(
    members: Sequence[Head], candidates: Mapping[Head, Sequence[Head]], rng: np.random.Generator
) -> tuple[Head, ...]:
    """One random set; the members are replaced in random order."""
    replaced: list[Head] = []
    for number in rng.permutation(len(members)):
        free = [head for head in candidates[members[number]] if head not in replaced]
        if free:
            nearest = free[:NEAREST]
            replaced.append(nearest[int(rng.integers(len(nearest)))])
    return tuple(sorted(replaced))
