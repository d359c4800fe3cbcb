"""Ten stretches of sequences by how strongly a head attends, and some of each, drawn by chance."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

INTERVALS, EACH = 10, 20


def intervals(largest: Float[ndarray, " sequence"]) -> Int[ndarray, " sequence"]:
    """The stretch of each sequence: 1 for the weakest tenth, 10 for the strongest.

    Sequences of one strength are in the order in which they were read.

    >>> intervals(np.array([0.3, 0.9, 0.1, 0.5, 0.7])).tolist()
    [4, 10, 2, 6, 8]
    """
    count = len(largest)
    rank = np.empty(count, np.int64)
    rank[np.argsort(largest, kind="stable")] = np.arange(count)
    found: Int[ndarray, " sequence"] = -(-(rank + 1) * INTERVALS // count)
    return found


def drawn(
    largest: Float[ndarray, " sequence"], rng: np.random.Generator, each: int = EACH
) -> list[tuple[int, int]]:
    """Sequences with their stretch, at most so many of each, the strongest first.

    Which of a stretch are taken is drawn without replacement, each as likely as any other, as a
    reservoir does.
    """
    stretch = intervals(largest)
    found: list[int] = []
    for number in range(INTERVALS, 0, -1):
        own = np.flatnonzero(stretch == number)
        taken = rng.choice(own, min(each, len(own)), replace=False) if len(own) else own
        found += sorted(taken.tolist(), key=lambda i: (-largest[i], i))
    return [(i, int(stretch[i])) for i in found]
