"""Heads that a text cannot tell: all holds but that too few queries speak against a simple rule."""

from __future__ import annotations

import re

import pandas as pd

from headscope.evidence.rule_words import rule_in_words
from headscope.evidence.tags import UNCLASSIFIED, UNIDENTIFIABLE

_DEPENDENCY = re.compile(r"(?P<label>.+):(?P<way>head>dep|dep>head)$")


def undecided(heads: pd.DataFrame, evidence: pd.DataFrame) -> pd.DataFrame:
    """The heads without a tag that have the verdict `not identifiable` for some relation.

    Args:
        heads: a row per head, as in `heads.csv`.
        evidence: a row per head × relation, as in `evidence.csv`.

    Returns:
        A row per such head by its name, in the order of the heads: the evidence of the relation
        with the largest lift of those, and in `said` what it cannot be told from.
    """
    if "verdict" not in evidence or not (evidence["verdict"] == UNIDENTIFIABLE).any():
        return heads.head(0)[["layer", "head"]].assign(said="")
    found = evidence[evidence["verdict"] == UNIDENTIFIABLE]
    found = found.sort_values("lift", ascending=False, kind="stable")
    found = found.drop_duplicates(["layer", "head"]).set_index(["layer", "head"])
    untagged = heads.loc[heads["primary"] == UNCLASSIFIED, ["layer", "head"]]
    rows = untagged.join(found, on=["layer", "head"], how="inner")
    said = [alternatives(*each) for each in rows[["relation", "baseline"]].to_numpy()]
    return rows.assign(said=pd.Series(said, rows.index, dtype=object))


def alternatives(relation: str, rule: str) -> str:
    """What a head may be doing, in words: the relation, or the simple rule.

    >>> alternatives("obj:dep>head", "nearest-VERB")
    'obj → its head, or nearest verb'
    >>> alternatives("det:head>dep", "2-words-back")
    'head → its det, or 2 words back'
    """
    return f"{_relation(relation)}, or {rule_in_words(rule)}"


def _relation(name: str) -> str:
    found = _DEPENDENCY.match(name)
    if found is None:
        return name
    label = found["label"]
    return f"{label} → its head" if found["way"] == "dep>head" else f"head → its {label}"
