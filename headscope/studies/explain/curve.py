"""How much rules say by how many features."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headscope.studies.explain.losses import ALL
from headscope.studies.explain.patterns import RULE, smaller_rule
from headscope.studies.explain.rules import HeadRule
from headscope.studies.explain.smaller import sizes_below

COLUMNS = ["features", "explained", "recovered"]


def curve_of(heads: Sequence[HeadRule], losses: pd.DataFrame | None, features: int) -> pd.DataFrame:
    """What rules of each size explain, a row per size, the smallest first.

    Returns:
        `features`, at most; the share of bits `explained`, the mean over heads of what is judged
        on held-out documents; and the share of the loss `recovered` with all heads on such rules,
        NaN where they were not run.
    """
    recovered = {} if losses is None else _recovered(losses)
    rows = []
    for size in [*sizes_below(features), features]:
        own = pd.Series([_explained(head, size) for head in heads])
        how = RULE if size == features else smaller_rule(size)
        rows.append((size, float(own.mean()), recovered.get(how, float("nan"))))
    return pd.DataFrame(rows, columns=COLUMNS)


def _explained(head: HeadRule, size: int) -> float:
    found = [each.explained for each in head.smaller if each.features == size]
    return found[0] if found else head.explained.value


def _recovered(losses: pd.DataFrame) -> dict[str, float]:
    own = losses[losses["replaced"] == ALL]
    return dict(zip(own["how"], own["recovered"], strict=True))
