"""headscope's own numbers as axes of HeadVis' scatter, beside HeadVis' metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from headscope.evidence.result import Result
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.listing import Head

_RELATION = "the {type} relation in which the head has the largest lift"
_OF_A_TYPE = {
    "mass": (
        "mass",
        f"headscope: attention on the targets of {_RELATION}, mean over its queries ({{names}}).",
    ),
    "lift": (
        "lift",
        f"headscope: attention on the targets minus that on control keys, of {_RELATION}.",
    ),
    "over_rule": (
        "contested_lift",
        "headscope: attention on the targets minus that on what the best simple rule picks, where "
        f"that rule is wrong, of {_RELATION}.",
    ),
}
"""By the end of a metric's name: the column of `evidence.csv`, and the words of its tooltip."""
_OF_A_HEAD = {
    "first_token_mass": "headscope: mean attention on the first token.",
    "sink_share": "headscope: mean share of attention that a learned sink takes.",
}
"""Columns of `heads.csv`."""


class Axes(NamedTuple):
    """What a run says of its heads, as metrics."""

    told: Mapping[str, str]
    """The words of each metric's tooltip."""
    values: Mapping[Head, Mapping[str, float]]
    """By head; what is not known of one is left out."""


def own_axes(run: Result) -> Axes:
    """The evidence of every type that a run judged, and how much heads rest.

    A type's numbers are those of its relation in which the head has the largest lift, of those that
    can earn a tag and were asked at `MIN_QUERIES` queries or more.
    """
    told: dict[str, str] = {}
    values: dict[Head, dict[str, float]] = {}
    best = _best(run)
    for name in best["type"].unique():
        own = best[best["type"] == name]
        for end, (column, words) in _OF_A_TYPE.items():
            metric = f"{name.replace('-', '_')}_{end}"
            if _put(own, column, metric, values):
                told[metric] = words.format(type=name, names=_listed(own["relation"]))
    for column, words in _OF_A_HEAD.items():
        if column in run.heads and _put(run.heads, column, column, values):
            told[column] = words
    return Axes(told, values)


def _best(run: Result) -> pd.DataFrame:
    rows = run.evidence
    ids = rows["type"] + "/" + rows["relation"]
    rules = run.rules
    able = ids.map({name: name not in rules or rules[name].taggable for name in ids.unique()})
    rows = rows[able & (rows["n"] >= MIN_QUERIES) & np.isfinite(rows["lift"])]
    order = rows.sort_values("lift", ascending=False, kind="stable")
    best = order.drop_duplicates(["layer", "head", "type"])
    return best.sort_index()


def _put(
    rows: pd.DataFrame, column: str, metric: str, values: dict[Head, dict[str, float]]
) -> bool:
    """Whether any row has such a number."""
    known = rows[np.isfinite(rows[column].to_numpy(float))]
    numbers = known[column].astype(float).tolist()
    heads = zip(known["layer"].tolist(), known["head"].tolist(), strict=True)
    for head, number in zip(heads, numbers, strict=True):
        values.setdefault(head, {})[metric] = number
    return bool(numbers)


def _listed(relations: pd.Series, most: int = 4) -> str:
    """Which relations these are, those of most heads first."""
    counts = relations.value_counts()
    names = sorted(counts.index, key=lambda name: (-counts[name], name))
    left = len(names) - most
    return ", ".join(names) if left < 2 else f"{', '.join(names[:most])} and {left} others"
