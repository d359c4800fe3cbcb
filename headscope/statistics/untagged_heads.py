"""Heads without a tag to report: `not identifiable` heads, and partial sinks.

The text holds too few queries for the former where a baseline is wrong. The mass of the latter on
the sink is below the threshold.
"""

from __future__ import annotations

import re
from math import isnan

import pandas as pd

from headscope.relations.relation import PARTIAL_SINK, SINK
from headscope.statistics.conditions import alternative, undecided_in_words
from headscope.statistics.head_lists import has_any_tag
from headscope.statistics.tags import UNIDENTIFIABLE, is_undecided
from headscope.statistics.wording import baseline_in_words

_DEPENDENCY = re.compile(r"(?P<label>.+):(?P<way>head>dep|dep>head)$")
_HEAD = ["layer", "head"]


def undecided(heads: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The heads that are `not identifiable`, with the relation that the text cannot decide.

    Args:
        heads: a row per head, by name.
        table: evidence with its thresholds.

    Returns:
        A row per such head by its name, in the order of the heads: the evidence of the relation
        with the largest lift of those, in `description` what it cannot be told from, in `why` what
        the text lacks, and in `hard_queries` the number of hard queries.
    """
    if not (table["verdict"] == UNIDENTIFIABLE).any():
        no_heads = heads.head(0)[_HEAD]
        return no_heads.assign(description="", why="", hard_queries="")
    # of each head the relation with the largest lift
    candidates = table[is_undecided(table)]
    candidates = candidates.sort_values("lift", ascending=False, kind="stable")
    candidates = candidates.drop_duplicates(_HEAD).set_index(_HEAD)
    # a head with a tag is decided, whatever else is open
    undecided_heads = heads.loc[heads["primary"] == UNIDENTIFIABLE, _HEAD]
    rows = undecided_heads.join(candidates, on=_HEAD, how="inner")
    descriptions, lacking, counts = [], [], []
    for row in rows.to_dict("records"):
        descriptions.append(alternatives(row["relation"], alternative(row)))
        lacking.append(undecided_in_words(row))
        counts.append("too few documents" if isnan(row["ci_low"]) else f"{row['hard_n']:.0f}")
    return rows.assign(
        description=pd.Series(descriptions, rows.index, dtype=object),
        why=pd.Series(lacking, rows.index, dtype=object),
        hard_queries=pd.Series(counts, rows.index, dtype=object),
    )


def alternatives(relation: str, alternative: str) -> str:
    """The two things a head may be doing, in words: the relation, or a baseline, or chance.

    Args:
        relation: name of the relation.
        alternative: what it cannot be told from; see `headscope.statistics.conditions.alternative`.

    >>> alternatives("obj:dep>head", "nearest-VERB")
    'obj → its head, or nearest verb'
    >>> alternatives("det:head>dep", "2-words-back")
    'head → its det, or 2 words back'
    """
    other = baseline_in_words(alternative) or "chance"
    return f"{_relation(relation)}, or {other}"


def _relation(name: str) -> str:
    match = _DEPENDENCY.match(name)
    if match is None:
        return name
    label = match["label"]
    if match["way"] == "dep>head":
        return f"{label} → its head"
    return f"head → its {label}"


def partial_sinks(table: pd.DataFrame) -> pd.DataFrame:
    """Heads without a tag of a sink, and the attention sink below its threshold with the largest
    mass.

    Returns:
        A row of the evidence with its thresholds per such head, and the place in words as
        `description`.
    """
    sinks = table[table["type"] == SINK]
    sinks = sinks.assign(description=[meaning.partition(",")[0] for meaning in sinks["meaning"]])
    is_large = sinks["mass"].between(PARTIAL_SINK, sinks["threshold"], inclusive="left")
    rows = sinks[~has_any_tag(sinks) & is_large]
    rows = rows.sort_values("mass", ascending=False, kind="stable")
    return rows.drop_duplicates(_HEAD).sort_values(_HEAD)
