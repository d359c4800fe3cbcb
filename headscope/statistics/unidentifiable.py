"""Heads that a text cannot tell: all holds but that too few queries speak against a simple rule."""

from __future__ import annotations

import re

import pandas as pd

from headscope.statistics.conditions import open_in_words
from headscope.statistics.heuristic_words import rule_in_words
from headscope.statistics.tags import UNIDENTIFIABLE

_DEPENDENCY = re.compile(r"(?P<label>.+):(?P<way>head>dep|dep>head)$")


def undecided(heads: pd.DataFrame, evidence: pd.DataFrame) -> pd.DataFrame:
    """The heads that are `not identifiable`, with the relation that the text cannot decide.

    Args:
        heads: a row per head, as a run has them.
        evidence: a row per head × relation, as in `evidence.csv`.

    Returns:
        A row per such head by its name, in the order of the heads: the evidence of the relation
        with the largest lift of those, in `said` what it cannot be told from, and in `why` what the
        text lacks.
    """
    if "verdict" not in evidence or not (evidence["verdict"] == UNIDENTIFIABLE).any():
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
