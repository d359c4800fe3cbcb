"""Heads that go by much the same rule."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.cluster.hierarchy import fcluster, linkage

from headscope.heads import head_name

APART = 0.6
"""Cosine distance, the mean over two clusters' heads, above which they stay apart."""
NAME_FEATURES = 2
"""Features that name a cluster, at most."""
SHARED = 0.25
"""A feature's share of the strongest one's that it must have to be in the name."""
COLUMNS = ["name", "count", "heads", "bits", "explained", "types"]


def clusters_of(rules: pd.DataFrame, heads: pd.DataFrame) -> pd.DataFrame:
    """Heads put together by what their rules look at and avoid.

    A head is a vector of its features, those at one kind of query apart: the root of their unique
    bits, negative where the weight is, times the logarithm of how rare the feature is among heads
    (inverse document frequency), for nearly all rest on token 0. Clusters come from average linkage
    of cosine distances, cut at `APART`.

    Args:
        rules: a row per head × feature.
        heads: a row per head.

    Returns:
        A row per cluster, that of most heads first: its `name`, the features that its heads
        share; the `count` of `heads`, their names joined by `;`; their mean `bits` and share
        `explained`; and their primary `types` with counts, where a run says so. Heads whose rule
        has no feature with unique bits are in none.
    """
    table = _vectors(rules)
    groups = _grouped(table.to_numpy(float))
    known = heads.set_index(["layer", "head"])
    rows = []
    for group in range(groups.max(initial=0)):
        members = table[groups == group + 1]
        mine = known.loc[list(members.index)]
        rows.append(
            (
                _name(members.mean()),
                len(members),
                ";".join(head_name(layer, head) for layer, head in members.index.tolist()),
                float(mine["bits"].mean()),
                float(mine["explained"].mean()),
                _types(mine["primary"]),
            )
        )
    clusters = pd.DataFrame(rows, columns=COLUMNS)
    return clusters.sort_values(["count", "bits"], ascending=False, ignore_index=True)


def _vectors(rules: pd.DataFrame) -> pd.DataFrame:
    """A row per head of length 1, a column per feature; heads without any are left out."""
    plain = rules["queries"] == ""
    gate = rules["queries"].where(plain, "on a " + rules["queries"] + ": ")
    columns = rules.assign(
        what=gate + rules["feature"],
        size=rules["unique"].clip(lower=0) ** 0.5 * np.sign(rules["weight"]),
    )
    table = columns.pivot_table("size", ["layer", "head"], "what", aggfunc="sum", fill_value=0.0)
    table = table * np.log((len(table) + 1) / (table != 0).sum().clip(lower=1))
    length = np.sqrt((table**2).sum(axis=1))
    return table[length > 0].div(length[length > 0], axis=0)


def _grouped(vectors: Float[ndarray, "head feature"]) -> Int[ndarray, " head"]:
    """The number of each head's cluster, from 1 on."""
    if len(vectors) < 2:
        return np.ones(len(vectors), int)
    groups: ndarray = fcluster(linkage(vectors, "average", "cosine"), APART, "distance")
    return groups


def _name(mean: pd.Series) -> str:
    size = mean.abs().sort_values(ascending=False, kind="stable")
    strong = size[size >= SHARED * size.iloc[0]].index[:NAME_FEATURES]
    return ", ".join(f"{'' if mean[feature] > 0 else 'not '}{feature}" for feature in strong)


def _types(primary: pd.Series) -> str:
    counts = primary[primary != ""].value_counts()
    return ", ".join(f"{name} {count}" for name, count in counts.items())
