"""headscope's own numbers as axes of HeadVis' scatter, beside HeadVis' metrics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.result import Result

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
_HEAD = ["layer", "head"]


class Axes(NamedTuple):
    """Metrics from what a run says of its heads."""

    tooltips: dict[str, str]
    """The words of each metric's tooltip."""
    values: pd.DataFrame
    """A column per metric, by layer and head; NaN for what is not known of one."""


def own_axes(run: Result) -> Axes:
    """The evidence of every type that a run judged, and how much heads rest.

    A type's numbers are those of its relation in which the head has the largest lift, of those that
    can earn a tag and were asked at `MIN_QUERIES` queries or more.
    """
    tooltips: dict[str, str] = {}
    columns: dict[str, pd.Series] = {}
    for name, rows in _best(run).set_index(_HEAD).groupby("type", sort=False):
        for end, (column, words) in _OF_A_TYPE.items():
            metric = f"{str(name).replace('-', '_')}_{end}"
            columns[metric] = rows[column]
            tooltips[metric] = words.format(type=name, names=_listed(rows["relation"]))
    heads = run.heads.set_index(_HEAD)
    for column, words in _OF_A_HEAD.items():
        if column in heads:
            columns[column], tooltips[column] = heads[column], words
    values = pd.DataFrame(columns, heads.index, dtype=float).replace([-np.inf, np.inf], np.nan)
    values = values.dropna(axis=1, how="all")
    return Axes({metric: tooltips[metric] for metric in values}, values)


def _best(run: Result) -> pd.DataFrame:
    rows = run.evidence
    ids = rows["type"] + "/" + rows["relation"]
    rules = run.rules
    able = ids.map({name: name not in rules or rules[name].taggable for name in ids.unique()})
    rows = rows[able & (rows["n"] >= MIN_QUERIES) & np.isfinite(rows["lift"])]
    order = rows.sort_values("lift", ascending=False, kind="stable")
    best = order.drop_duplicates([*_HEAD, "type"])
    return best.sort_index()


def _listed(relations: pd.Series, limit: int = 4) -> str:
    """Names of these relations, those of most heads first."""
    counts = relations.value_counts()
    names = sorted(counts.index, key=lambda name: (-counts[name], name))
    unlisted = len(names) - limit
    return ", ".join(names) if unlisted < 2 else f"{', '.join(names[:limit])} and {unlisted} others"
