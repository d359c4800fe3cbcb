"""Partial sinks: heads that rest much, and yet too little for the tag of a sink."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from headscope.relations.relation import TagThresholds
from headscope.relations.sink import PARTIAL, TYPE
from headscope.statistics.columns import rows_of_head

_HEAD = ["layer", "head"]


def partial_sinks(evidence: pd.DataFrame, rules: Mapping[str, TagThresholds]) -> pd.DataFrame:
    """Heads without a tag of a sink, and the resting place below its floor with the largest mass.

    Args:
        evidence: a row per head × relation, as in `evidence.csv`.
        rules: the thresholds of each relation by its full name.

    Returns:
        A row of the evidence per such head, with `floor` and in `said` the place in words.
    """
    sinks = evidence[evidence["type"] == TYPE.name]
    ids = sinks["type"] + "/" + sinks["relation"]
    sinks = sinks.assign(
        floor=ids.map({name: rule.floor for name, rule in rules.items()}).astype(float),
        said=ids.map({name: rule.meaning.partition(",")[0] for name, rule in rules.items()}),
    )
    is_tagged = sinks["tagged"].astype(bool).groupby([sinks[k] for k in _HEAD]).transform("any")
    is_partial = ~is_tagged & sinks["mass"].between(PARTIAL, sinks["floor"], inclusive="left")
    rows = sinks[is_partial].sort_values("mass", ascending=False, kind="stable")
    return rows.drop_duplicates(_HEAD).sort_values(_HEAD)


def partial_sink_line(
    evidence: pd.DataFrame, rules: Mapping[str, TagThresholds], layer: int, head: int
) -> str:
    """A sentence on a head that is a partial sink; empty of any other."""
    rows = partial_sinks(rows_of_head(evidence, layer, head), rules)
    if rows.empty:
        return ""
    row = rows.iloc[0]
    return (
        f"Partial sink: {row['mass']:.2f} of its attention on {row['said']}; "
        f"the tag asks for {row['floor']:g}."
    )
