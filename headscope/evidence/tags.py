"""From evidence to tags: a condition is a row, so that tags and near misses can say why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from headscope.evidence.columns import EVIDENCE_COLUMNS, HEAD_COLUMNS
from headscope.evidence.conditions import CONDITIONS, QUERIES, UNDECIDED, Row, failures
from headscope.relations.relation import MIN_QUERIES, Rule

UNCLASSIFIED = "unclassified"
NO_TAG = "no tag, closest to"
"""Before the relation that a head without a tag is shown with, wherever it is shown."""
TAGGED, UNIDENTIFIABLE, NO = "tagged", "not identifiable", "no"
VERDICTS = (TAGGED, UNIDENTIFIABLE, NO)
"""The three verdicts on a head and a relation."""

RESTING_PLACES = ("sink/first-token", "sink/resting-column", "delimiter/first-token")
"""Relations that are no function; the last is what headscope called the first until 0.2."""

_NUMBERS = ("control", "lift", "ci_low", "ci_high", "q_value")


def is_sink(relation: pd.Series) -> pd.Series:
    """Which relations, by their full names, are resting places and no function."""
    return relation.isin(RESTING_PLACES)


def with_rules(
    evidence: pd.DataFrame, rules: Mapping[str, Rule], *, fewest: int = MIN_QUERIES
) -> pd.DataFrame:
    """The evidence with each relation's thresholds beside it, and its full name as `id`."""
    table = evidence.reset_index(drop=True).reindex(
        columns=[*evidence.columns, *(c for c in EVIDENCE_COLUMNS if c not in evidence)]
    )
    table["id"] = table["type"] + "/" + table["relation"]
    # hundreds of thousands of rows have a few hundred names
    row, names = pd.factorize(table["id"])
    known = [rules.get(name) for name in names]
    for name in ("floor", "beat_baseline_by", "times_chance"):
        table[name] = np.array([getattr(rule, name, None) for rule in known], float)[row]
    table["fewest"] = fewest
    for name in ("taggable", "broad"):  # True where no rule is known
        table[name] = np.array([getattr(rule, name, True) for rule in known], bool)[row]
    companion = np.array([getattr(rule, "companion", None) for rule in known], object)[row]
    table["companion"] = companion
    asking = np.flatnonzero(pd.notna(companion))
    table["companion_mass"] = np.nan
    if len(asking):
        key = ["layer", "head", "id"]
        masses = table[table["id"].isin(set(companion[asking]))].set_index(key)["mass"]
        asked = table.loc[asking, ["layer", "head"]].assign(id=companion[asking])
        found = masses.reindex(pd.MultiIndex.from_frame(asked)).to_numpy()
        table.loc[asking, "companion_mass"] = found
    return table


def verdicts(
    evidence: pd.DataFrame, rules: Mapping[str, Rule], *, fewest: int = MIN_QUERIES
) -> pd.Series:
    """The `verdict` column.

    `tagged` where every condition holds, `not identifiable` where only queries are missing that
    could tell the relation from a simple rule, else `no`.
    """
    if evidence.empty:
        return pd.Series([], dtype=object)
    failed = failures(with_rules(evidence, rules, fewest=fewest))
    count = failed.sum(axis=1)
    found = pd.Series(NO, index=failed.index)
    found[count == 0] = TAGGED
    found[(count == 1) & failed[UNDECIDED]] = UNIDENTIFIABLE
    return found


def head_table(
    evidence: pd.DataFrame, rules: Mapping[str, Rule], profile: pd.DataFrame, kv_group_size: int
) -> pd.DataFrame:
    """A row per head: its tags, the strongest with its numbers, its profile and the reason.

    `primary` is the tag with the largest lift, except that tags that say only what kind of key
    gets the attention come after those that say which, and resting places last. A head without a
    tag is `unclassified`, and its numbers are those of a relation that cannot be told apart here,
    or else of that which came closest.
    """
    table = with_rules(evidence, rules)
    ordered = table.loc[in_order(table)]
    best = ordered.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])
    kinds = _kinds(ordered[ordered["tagged"].astype(bool)])
    tags = [kinds.get(key, "") for key in zip(best["layer"], best["head"], strict=True)]
    heads = best[["layer", "head", "relation", "mass", *_NUMBERS]].assign(
        primary=best["type"].where(best["tagged"].astype(bool), UNCLASSIFIED),
        tags=tags,
        score=best["mass"],
        reason=reasons(best, rules),
        kv_group=best["head"] // kv_group_size,
    )
    heads = heads.assign(writes="", write_lift=np.nan)  # until effects are weighed
    return heads.merge(profile, on=["layer", "head"])[HEAD_COLUMNS]


def _kinds(tagged: pd.DataFrame) -> dict[tuple[int, int], str]:
    """The types that each tagged head earned, in the order of the rows."""
    found: dict[tuple[int, int], dict[str, None]] = {}
    for layer, head, kind in tagged[["layer", "head", "type"]].itertuples(index=False):
        found.setdefault((layer, head), {})[kind] = None
    return {key: ";".join(types) for key, types in found.items()}


def countable_types(evidence: pd.DataFrame, rules: Mapping[str, Rule]) -> list[str]:
    """The types that a head could have earned here, in the order of the evidence.

    Those with enough queries and blocks for at least one relation that gives a tag, and with enough
    contested queries where it asks for them. A count of heads of another type would be 0 without
    anything having been measured.
    """
    if evidence.empty:
        return []
    table = with_rules(evidence, rules)
    conditions = {condition.name: condition for condition in CONDITIONS}
    able = table["ci_low"].notna()
    for name in (QUERIES, UNDECIDED):
        able &= ~conditions[name].fails(table)
    return [str(name) for name in table.loc[able, "type"].unique()]


def reasons(table: pd.DataFrame, rules: Mapping[str, Rule]) -> list[str]:
    """For each row of `with_rules` a sentence: what the head does with which numbers, and for a
    near miss what failed.
    """
    failed = failures(table)
    rows = zip(table.to_dict("records"), failed.to_dict("records"), strict=True)
    return [_reason(row, rules, fails) for row, fails in rows]


def _reason(row: Row, rules: Mapping[str, Rule], fails: Mapping[str, bool]) -> str:
    meaning = rules[row["id"]].meaning
    numbers = (
        f"{row['mass']:.2f} of its attention on {meaning} (control {row['control']:.2f}, "
        f"lift {row['lift']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}], "
        f"q {row['q_value']:.1g}, n {row['n']})"
    )
    if row["tagged"]:
        return f"{row['id']}: {numbers}"
    if row["verdict"] == UNIDENTIFIABLE:
        return f"{row['id']}, or {row['baseline']}: this text does not tell them apart; {numbers}"
    failing = [condition.say(row) for condition in CONDITIONS if fails[condition.name]]
    return f"closest to {row['id']}: {numbers}; fails: {'; '.join(failing)}"


def in_order(table: pd.DataFrame) -> pd.Index:
    """The rows of `with_rules`: tags first, the vaguest last of them, then what came closest."""
    tagged = table["tagged"].astype(bool)
    rank = pd.DataFrame(
        {
            "verdict": np.select([tagged, table["verdict"] == UNIDENTIFIABLE], [0, 1], 2),
            "failed": np.where(tagged, 0, failures(table).sum(axis=1)),
            "vague": np.select([~tagged, is_sink(table["id"]), table["broad"]], [0, 2, 1], 0),
            "lift": -table["lift"],
        },
        index=table.index,
    )
    return rank.sort_values(["verdict", "failed", "vague", "lift"], kind="stable").index
