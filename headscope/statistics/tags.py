"""Tags from evidence: verdicts on each head and relation, and the table of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from numpy import ndarray

from headscope.relations.relation import MIN_QUERIES, TagThresholds
from headscope.statistics.cautions import with_cautions
from headscope.statistics.columns import (
    EFFECT_NUMBERS,
    EVIDENCE_COLUMNS,
    GENERAL,
    HEAD_COLUMNS,
    PRELIMINARY,
)
from headscope.statistics.conditions import (
    CONDITIONS,
    HARD_QUERIES,
    MIN_HARD,
    Q_VALUE,
    QUERIES,
    Numbers,
    Row,
    failures,
    has_no_interval,
    inconclusive,
    is_open,
    undecided_in_words,
)

UNCLASSIFIED = "unclassified"
NO_TAG = "no tag, closest to"
"""Words before the closest relation of a head without a tag."""
TAGGED, UNIDENTIFIABLE, INCONCLUSIVE, NO = "tagged", "not identifiable", "inconclusive", "no"
VERDICTS = (TAGGED, UNIDENTIFIABLE, INCONCLUSIVE, NO)
"""The four verdicts on a head and a relation."""
OPEN = (UNIDENTIFIABLE, INCONCLUSIVE)
"""Verdicts that are neither a tag nor a rejection."""
NO_TYPE = (UNIDENTIFIABLE, UNCLASSIFIED)
"""Primary types of heads without a tag; see `with_no_type`."""

SINK_RELATIONS = ("sink/first-token", "sink/position")
"""Relations of attention sinks, which are not a function of a head."""

_THRESHOLDS = ("threshold", "beat_baseline_by", "times_chance", "sign")
_PAIRED = {
    "paired_mass": "mass",
    "paired_error": "mass_error",
}
"""Columns of a relation's paired relation at the same head, and those that they have there."""
_RANKS = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
_NUMBERS = ("control", "lift", "ci_low", "ci_high", "q_value")


def is_sink(relation: pd.Series) -> pd.Series:
    """Mark relations, by their full names, that are attention sinks."""
    return relation.isin(SINK_RELATIONS)


def with_thresholds(
    evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds], *, fewest: int = MIN_QUERIES
) -> pd.DataFrame:
    """The evidence with each relation's thresholds, and its full name as `id`.

    Numbers of effects count upwards in the direction that each of them asks for.
    """
    table = evidence.reset_index(drop=True)
    absent = [name for name in (*EVIDENCE_COLUMNS, *EFFECT_NUMBERS) if name not in table]
    names = table["id"] if "id" in table else table["type"] + "/" + table["relation"]
    # hundreds of thousands of rows have a few hundred names
    row, ids = pd.factorize(names)
    known = [thresholds.get(name) for name in ids]

    def of_threshold(name: str, kind: type, unknown: Any = None) -> ndarray:
        of_relation: ndarray = np.array([getattr(limits, name, unknown) for limits in known], kind)
        return np.asarray(of_relation[row])

    is_uncertain = table[PRELIMINARY].eq(True) if PRELIMINARY in table else False
    table = table.assign(
        **dict.fromkeys(absent, np.nan)
        | {PRELIMINARY: is_uncertain}
        | {"id": names, "fewest": fewest, "fewest_hard": MIN_HARD * fewest // MIN_QUERIES}
        | {GENERAL: table[GENERAL].astype(object).fillna("") if GENERAL in table else ""},
        **{name: of_threshold(name, float) for name in _THRESHOLDS},
        **{name: of_threshold(name, bool, unknown=True) for name in ("taggable", "broad")},
        paired_relation=of_threshold("paired_relation", object),
    )
    number = {name: i for i, name in enumerate(ids)}
    paired_relations = np.array(
        [number.get(getattr(limits, "paired_relation", None), -1) for limits in known], int
    )
    paired_rows = _same_heads(table, row, paired_relations)
    for name, column in _PAIRED.items():
        numbers = table[column].to_numpy(float)
        table[name] = np.where(paired_rows < 0, np.nan, numbers[paired_rows])
    return _upward(table) if (table["sign"] < 0).any() else table


def _same_heads(
    table: pd.DataFrame, relation: Int[ndarray, " row"], paired_relations: Int[ndarray, " relation"]
) -> Int[ndarray, " row"]:
    """For each row the row of the same head and another relation; −1 if absent."""
    layer, head = (table[name].to_numpy(np.int64) for name in ("layer", "head"))
    head_number, heads = pd.factorize(layer * (head.max(initial=0) + 1) + head)
    rows = np.full((len(paired_relations) + 1, len(heads)), -1)  # the last has none: of −1
    rows[relation, head_number] = np.arange(len(table))
    return np.asarray(rows[paired_relations[relation], head_number])


def _upward(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the numbers of effects turned round where heads are to lower tokens."""
    upward, down = table.copy(), table["sign"] < 0
    for name in ("lift", "second_lift", "moved"):
        upward[name] = table[name].where(~down, -table[name])
    for prefix in ("ci", "second", "moved"):
        low, high = f"{prefix}_low", f"{prefix}_high"
        upward[low] = table[low].where(~down, -table[high])
        upward[high] = table[high].where(~down, -table[low])
    return upward


def verdicts(
    evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds], *, fewest: int = MIN_QUERIES
) -> pd.Series:
    """The `verdict` column.

    `tagged` if every condition holds; `not identifiable` if there are too few blocks of documents
    for an interval, or if all hold but that hard queries cannot distinguish the relation from
    baselines; `inconclusive` if the interval of every failed condition includes its threshold; else
    `no`.
    """
    if evidence.empty:
        return pd.Series([], dtype=object)
    table = with_thresholds(evidence, thresholds, fewest=fewest)
    failed = failures(table)
    others = failed.drop(columns=HARD_QUERIES).any(axis=1)
    numbers = Numbers(table)
    verdict = pd.Series(NO, index=failed.index)
    verdict[inconclusive(table, failed)] = INCONCLUSIVE
    verdict[~others & is_open(numbers)] = UNIDENTIFIABLE
    verdict[has_no_interval(numbers)] = UNIDENTIFIABLE
    verdict[~failed.any(axis=1)] = TAGGED
    return verdict


def is_undecided(table: pd.DataFrame) -> pd.Series:
    """Rows of `with_thresholds` that are `not identifiable` and might have a tag on other text.

    A relation without an interval is `not identifiable` for every head. Here it counts only for
    heads of which every condition holds that needs neither an interval nor hard queries.
    """
    numbers, failed = Numbers(table), failures(table)
    others = failed.drop(columns=[HARD_QUERIES, Q_VALUE]).any(axis=1)
    is_near = ~others & (numbers["lift"] > 0)
    is_unidentifiable: pd.Series = table["verdict"] == UNIDENTIFIABLE
    return is_unidentifiable & (is_near | ~has_no_interval(numbers))


def head_table(
    evidence: pd.DataFrame,
    thresholds: Mapping[str, TagThresholds],
    profile: pd.DataFrame,
    kv_group_size: int,
) -> pd.DataFrame:
    """A row per head: its tags, the strongest with its numbers, its profile and the reason.

    `primary` is the tag with the largest lift, except that tags that say only what kind of key
    gets the attention come after those that say which, and attention sinks last. A head without a
    tag is one of `NO_TYPE`, and its numbers are those of a relation that the text cannot decide,
    or else of that which came closest.
    """
    table = with_thresholds(evidence, thresholds)
    ordered = table.loc[evidence_order(table)]
    best = ordered.drop_duplicates(["layer", "head"]).sort_values(["layer", "head"])
    ordered_tags = ordered[ordered["tagged"].astype(bool)]
    kinds = _kinds(ordered_tags)
    tags = [kinds.get(key, "") for key in zip(best["layer"], best["head"], strict=True)]
    heads = best[["layer", "head", "relation", "mass", *_NUMBERS]].assign(
        primary=best["type"].where(best["tagged"].astype(bool), UNCLASSIFIED),
        tags=tags,
        reason=reasons(best, thresholds),
        kv_group=best["head"] // kv_group_size,
    )
    heads = heads.assign(direct_effects="", direct_effect_lift=np.nan)  # until effects are weighed
    heads = with_cautions(heads, ordered_tags)
    heads = heads.merge(profile, on=["layer", "head"])[HEAD_COLUMNS]
    return with_no_type(heads, evidence, thresholds)


def with_no_type(
    heads: pd.DataFrame, evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds]
) -> pd.DataFrame:
    """The heads, with one of two words as the `primary` of those without a tag.

    `not identifiable` if the head would have a tag that the text cannot decide; see `is_undecided`.
    Else `unclassified`.
    """
    table = with_thresholds(evidence, thresholds)
    open_rows = table.loc[is_undecided(table), ["layer", "head"]]
    undecided = set(open_rows.itertuples(index=False, name=None))
    places = heads[["layer", "head"]].itertuples(index=False, name=None)
    words = [UNIDENTIFIABLE if head in undecided else UNCLASSIFIED for head in places]
    untyped = heads["primary"].isin(NO_TYPE).to_numpy(bool)
    return heads.assign(primary=np.where(untyped, words, heads["primary"]).astype(object))


def _kinds(tagged: pd.DataFrame) -> dict[tuple[int, int], str]:
    types_of: dict[tuple[int, int], dict[str, None]] = {}
    for layer, head, kind in tagged[["layer", "head", "type"]].itertuples(index=False):
        types_of.setdefault((layer, head), {})[kind] = None
    return {key: ";".join(types) for key, types in types_of.items()}


def countable_types(evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds]) -> list[str]:
    """The types that a head could have earned here, in the order of the evidence.

    Those with enough queries and blocks for at least one relation that gives a tag, and with enough
    hard queries where it asks for them. A count of heads of another type would be 0 without
    anything having been measured.
    """
    if evidence.empty:
        return []
    table = with_thresholds(evidence, thresholds)
    return [str(name) for name in table.loc[is_decidable(table), "type"].unique()]


def decidable_relations(
    evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds]
) -> dict[str, int]:
    """Number of `relations` that a text can decide for some head, `of` those that give tags."""
    table = with_thresholds(evidence, thresholds)
    taggable = sum(limits.taggable for limits in thresholds.values())
    return {"relations": int(table.loc[is_decidable(table), "id"].nunique()), "of": taggable}


def is_decidable(table: pd.DataFrame) -> pd.Series:
    """Rows of `with_thresholds` with queries, blocks and hard queries enough for a tag."""
    numbers = Numbers(table)
    return table["ci_low"].notna() & ~failures(table)[QUERIES] & ~is_open(numbers)


def reasons(table: pd.DataFrame, thresholds: Mapping[str, TagThresholds]) -> list[str]:
    """For each row of `with_thresholds` a sentence: what the head does with which numbers, and for
    a near miss what failed.
    """
    numbers = Numbers(table)
    fails = {condition.name: condition.fails(numbers).tolist() for condition in CONDITIONS}
    margins = {c.name: None if c.margin is None else c.margin(numbers) for c in CONDITIONS}
    return [
        _reason(
            row,
            thresholds[row["id"]].meaning,
            [c.message(row, margins[c.name], i) for c in CONDITIONS if fails[c.name][i]],
        )
        for i, row in enumerate(table.to_dict("records"))
    ]


def _reason(row: Row, meaning: str, failing: Sequence[str]) -> str:
    numbers = (
        f"{row['mass']:.2f} of its attention on {meaning} (control {row['control']:.2f}, "
        f"lift {row['lift']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}], "
        f"q {row['q_value']:.1g}, n {row['n']})"
    )
    if has_no_interval(Numbers(row))[0]:
        return f"{row['id']}: this text cannot decide it: {undecided_in_words(row)}; {numbers}"
    if row["tagged"]:
        return f"{row['id']}: {numbers}" + f"; general: {row[GENERAL]}" * bool(row[GENERAL])
    if row["verdict"] == UNIDENTIFIABLE:
        return f"{row['id']}, or {row['baseline']}: this text cannot distinguish them; {numbers}"
    fails = f"{INCONCLUSIVE}" if row["verdict"] == INCONCLUSIVE else "fails"
    return f"closest to {row['id']}: {numbers}; {fails}: {'; '.join(failing)}"


def tags_in_order(evidence: pd.DataFrame, thresholds: Mapping[str, TagThresholds]) -> pd.DataFrame:
    """The rows of the evidence with tags, in the order of `evidence_order`."""
    table = with_thresholds(evidence[evidence["tagged"].astype(bool)], thresholds)
    return table.loc[evidence_order(table)]


def evidence_order(table: pd.DataFrame) -> pd.Index:
    """The rows of `with_thresholds`: tags first, the vaguest last of them, then what came
    closest.
    """
    tagged = table["tagged"].astype(bool)
    ranks = table["verdict"].map(_RANKS).where(~tagged, 0)
    is_far = (table["verdict"] == UNIDENTIFIABLE) & ~is_undecided(table)
    rank = pd.DataFrame(
        {
            "verdict": ranks.where(~is_far, _RANKS[NO]),
            "failed": np.where(tagged, 0, failures(table).sum(axis=1)),
            "vague": np.select([~tagged, is_sink(table["id"]), table["broad"]], [0, 2, 1], 0),
            "lift": -table["lift"],
        },
        index=table.index,
    )
    return rank.sort_values(["verdict", "failed", "vague", "lift"], kind="stable").index
