"""Heads without a tag that a reader wants to hear of.

Those that a text cannot tell: all holds but that too few queries speak against a simple rule. And
partial sinks, which rest much, and yet too little for the tag of a sink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from headscope.relations.relation import TagThresholds
from headscope.relations.sink import PARTIAL, TYPE
from headscope.statistics.columns import rows_of_head
from headscope.statistics.conditions import open_in_words
from headscope.statistics.heuristic_words import rule_in_words
from headscope.statistics.tags import UNIDENTIFIABLE

_DEPENDENCY = re.compile(r"(?P<label>.+):(?P<way>head>dep|dep>head)$")


def undecided(heads: pd.DataFrame, evidence: pd.DataFrame) -> pd.DataFrame:
    """The heads that are `not identifiable`, with the relation that the text cannot decide.

    Returns:
        A row per such head by its name, in the order of the heads: the evidence of the relation
        with the largest lift of those, in `said` what it cannot be told from, and in `why` what the
        text lacks.
    """
    if not (evidence["verdict"] == UNIDENTIFIABLE).any():
        return heads.head(0)[["layer", "head"]].assign(said="", why="")
    candidates = evidence[evidence["verdict"] == UNIDENTIFIABLE]
    candidates = candidates.sort_values("lift", ascending=False, kind="stable")
    candidates = candidates.drop_duplicates(["layer", "head"]).set_index(["layer", "head"])
    undecided_heads = heads.loc[heads["primary"] == UNIDENTIFIABLE, ["layer", "head"]]
    rows = undecided_heads.join(candidates, on=["layer", "head"], how="inner")
    descriptions = [alternatives(*names) for names in rows[["relation", "baseline"]].to_numpy()]
    lacking = [open_in_words(row) for row in rows.to_dict("records")]
    return rows.assign(
        said=pd.Series(descriptions, rows.index, dtype=object),
        why=pd.Series(lacking, rows.index, dtype=object),
    )


def alternatives(relation: str, rule: str) -> str:
    """The two things a head may be doing, in words: the relation, or the simple rule.

    >>> alternatives("obj:dep>head", "nearest-VERB")
    'obj → its head, or nearest verb'
    >>> alternatives("det:head>dep", "2-words-back")
    'head → its det, or 2 words back'
    """
    return f"{_relation(relation)}, or {rule_in_words(rule)}"


def _relation(name: str) -> str:
    match = _DEPENDENCY.match(name)
    if match is None:
        return name
    label = match["label"]
    return f"{label} → its head" if match["way"] == "dep>head" else f"head → its {label}"


_HEAD = ["layer", "head"]


def partial_sinks(evidence: pd.DataFrame, rules: Mapping[str, TagThresholds]) -> pd.DataFrame:
    """Heads without a tag of a sink, and the resting place below its floor with the largest mass.

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
    return partial_sink_lines(rows_of_head(evidence, layer, head), rules).get((layer, head), "")


def partial_sink_lines(
    evidence: pd.DataFrame, rules: Mapping[str, TagThresholds]
) -> dict[tuple[int, int], str]:
    """The sentences on all partial sinks, by layer and head."""
    return {
        (row["layer"], row["head"]): (
            f"Partial sink: {row['mass']:.2f} of its attention on {row['said']}; "
            f"the tag asks for {row['floor']:g}."
        )
        for row in partial_sinks(evidence, rules).to_dict("records")
    }
