"""Split-half reliability: do two halves of the corpus put the heads in the same order?"""

from __future__ import annotations

import numpy as np
from scipy import stats

from headscope.measure.tally import Tally
from headscope.relations.relation import MIN_QUERIES


def split_half(tally: Tally) -> dict[str, float]:
    """For each relation the rank correlation of the heads' lift between its even and odd blocks.

    In [−1, 1]; above 0.9 the order of the heads hardly depends on the text. Relations with fewer
    than 50 queries, or whose heads all score the same, are left out. Spearman 1904.
    """
    found = {}
    all_excess = tally.target - tally.control
    for index, relation in enumerate(tally.relations):
        if tally.queries[:, index].sum() < MIN_QUERIES:
            continue
        halves = []
        used = np.flatnonzero(tally.queries[:, index])
        if len(used) < 2:
            continue
        for part in (used[::2], used[1::2]):
            excess = all_excess[part, index].sum(0).ravel()
            halves.append(excess / max(tally.queries[part, index].sum(), 1))
        if all(np.ptp(half) > 0 for half in halves):
            found[relation] = round(float(stats.spearmanr(*halves).statistic), 4)
    return found
