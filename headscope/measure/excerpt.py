"""The tokens of its window that an example shows: no stretch, but those near the query's keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

WIDTH = 28
"""Tokens that an excerpt around a query shows at most: ten of them, a decile each, take no more
room than six of 40, and the query, its target and its strongest keys keep what is beside them."""
BEGINNING = 40
"""Tokens of an ordinary text that are shown."""
STRONGEST = 3
"""Keys that are shown because the query looks there most."""
CONTEXT_TOKENS = 3
"""Tokens that are shown on each side of the query, its targets and its strongest keys."""


def excerpt(
    query: int, targets: Int[ndarray, " target"], row: Float[ndarray, " key"], length: int
) -> Int[ndarray, " shown"]:
    """The positions that are shown of a window, rising from the first token's 0.

    Shown are the first token, the query, its targets (those with the most attention where there
    are more than fit), its strongest keys and what stands beside all these; where room is left,
    the text before the query.

    Args:
        query: the query's position.
        targets: positions of its targets, at or before it.
        row: the query's attention on every key up to itself.
        length: tokens of the window.
    """
    by_attention = targets[np.argsort(-row[targets], kind="stable")].tolist()
    strongest = np.argsort(-row, kind="stable")[:STRONGEST].tolist()
    excerpt_positions: dict[int, None] = {}
    for position in _by_importance(query, by_attention, strongest):
        if 0 <= position < length:
            excerpt_positions[position] = None
        if len(excerpt_positions) == WIDTH:
            break
    return np.sort(np.fromiter(excerpt_positions, np.int64))


def _by_importance(query: int, targets: list[int], strongest: list[int]) -> Iterator[int]:
    yield from (query, 0, *targets, *strongest)
    for step in range(1, CONTEXT_TOKENS + 1):
        for position in (query, *targets, *strongest):
            yield position - step
            yield position + step
    yield from range(query - CONTEXT_TOKENS - 1, 0, -1)


def stretches_left_out(positions: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each stretch between the shown: the place of what follows it, its first position, its end."""
    return [
        (index, before + 1, after)
        for index, (before, after) in enumerate(pairwise(positions), start=1)
        if after > before + 1
    ]
