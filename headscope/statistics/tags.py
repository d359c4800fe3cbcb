"""Tags from evidence: verdicts on each head and relation, and the table of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from numpy import ndarray

from headscope.relations.relation import Threshold
from headscope.statistics.cautions import types_of_heads, with_cautions
from headscope.statistics.columns import (
    EFFECT_NUMBERS,
    EVIDENCE_COLUMNS,
    GENERAL,
    HEAD_COLUMNS,
    PRELIMINARY,
    REPLICATES,
)
from headscope.statistics.conditions import (
    CONDITIONS,
    HARD_QUERIES,
    Q_VALUE,
    QUERIES,
    Numbers,
    Row,
    alternative,
    decided_failures,
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

_THRESHOLDS = ("threshold", "beat_baseline_by", "times_chance", "surrogate_share", "sign")
_PAIRED = {
    "paired_mass": "mass",
    "paired_error": "mass_error",
}
"""Columns of a relation's paired relation at the same head, and those that they have there."""
_RANKS = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
_NUMBERS = ("control", "lift", "ci_low", "ci_high", "q_value")
_HEAD = ["layer", "head"]


def is_sink(relation: pd.Series) -> pd.Series:
    """Mark relations, by their full names, that are attention sinks."""
    return relation.isin(SINK_RELATIONS)


def with_thresholds(evidence: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> pd.DataFrame:
    """The evidence with each relation's thresholds and meaning, and its full name as `id`.

    Numbers of effects count upwards in the direction that each of them asks for.
    """
    table = evidence.reset_index(drop=True)
    absent = [name for name in (*EVIDENCE_COLUMNS, *EFFECT_NUMBERS) if name not in table]
    table = table.assign(**dict.fromkeys(absent, np.nan))
    if "id" not in table:
        table["id"] = table["type"] + "/" + table["relation"]
    table[PRELIMINARY] = table[PRELIMINARY].eq(True)
    table[GENERAL] = table[GENERAL].astype(object).fillna("")
    # hundreds of thousands of rows have a few hundred names
    row, ids = pd.factorize(table["id"])
    known = [thresholds.get(name) for name in ids]

    def of_threshold(name: str, kind: type, unknown: Any = None) -> ndarray:
        values = [getattr(limits, name, unknown) for limits in known]
        return np.asarray(np.array(values, kind)[row])

    # a relation that the run has no thresholds of has NaN
    for name in _THRESHOLDS:
        table[name] = of_threshold(name, float)
    for name in ("taggable", "broad"):
        table[name] = of_threshold(name, bool, unknown=True)
    for name in ("paired_relation", "meaning"):
        table[name] = of_threshold(name, object)

    # numbers of the paired relation at the same head, NaN if it was not measured
    number_of = {name: number for number, name in enumerate(ids)}
    paired = [getattr(limits, "paired_relation", None) for limits in known]
    paired_numbers = [number_of.get(name, -1) for name in paired]
    paired_rows = _same_heads(table, row, np.array(paired_numbers, int))
    for name, column in _PAIRED.items():
        numbers = table[column].to_numpy(float)
        table[name] = np.where(paired_rows < 0, np.nan, numbers[paired_rows])

    # effects that lower logits count upwards: their numbers are turned round, and their ends
    down = table["sign"] < 0
    if not down.any():
        return table
    upward = table.copy()
    for name in ("lift", "second_lift", "moved"):
        upward[name] = table[name].where(~down, -table[name])
    for prefix in ("ci", "second", "moved"):
        low, high = table[f"{prefix}_low"], table[f"{prefix}_high"]
        upward[f"{prefix}_low"] = low.where(~down, -high)
        upward[f"{prefix}_high"] = high.where(~down, -low)
    return upward


def _same_heads(
    table: pd.DataFrame, relation: Int[ndarray, " row"], paired_relations: Int[ndarray, " relation"]
) -> Int[ndarray, " row"]:
    """For each row the row of the same head and another relation; −1 if absent."""
    layer = table["layer"].to_numpy(np.int64)
    head = table["head"].to_numpy(np.int64)
    heads_per_layer = head.max(initial=0) + 1
    number = layer * heads_per_layer + head
    head_number, heads = pd.factorize(number)
    # the last relation has no row: a paired relation of −1 is absent
    relations = len(paired_relations) + 1
    row_of = np.full((relations, len(heads)), -1)
    row_of[relation, head_number] = np.arange(len(table))
    paired = paired_relations[relation]
    return np.asarray(row_of[paired, head_number])


def verdicts(table: pd.DataFrame) -> pd.Series:
    """The `verdict` column of evidence with its thresholds.

    `tagged` if every condition holds; `not identifiable` if there are too few blocks of documents
    for an interval, or if all hold but those that the text cannot decide, as it has too few queries
    where the baseline or the surrogate is wrong; `inconclusive` if the interval of every failed
    condition includes its threshold; else `no`.
    """
    if table.empty:
        return pd.Series([], dtype=object)
    failed = failures(table)
    is_rejected = decided_failures(table, failed).any(axis=1)
    numbers = Numbers(table)
    verdict = pd.Series(NO, index=failed.index)
    verdict[inconclusive(table, failed)] = INCONCLUSIVE
    verdict[~is_rejected] = UNIDENTIFIABLE
    verdict[has_no_interval(numbers)] = UNIDENTIFIABLE
    verdict[~failed.any(axis=1)] = TAGGED
    return verdict


def is_undecided(table: pd.DataFrame) -> pd.Series:
    """Rows with thresholds that are `not identifiable` and might have a tag on other text.

    A relation without an interval is `not identifiable` for every head. Here it counts only for
    heads of which every condition holds that needs neither an interval nor hard queries.
    """
    numbers = Numbers(table)
    failed = decided_failures(table, failures(table))
    others = failed.drop(columns=[HARD_QUERIES, Q_VALUE]).any(axis=1)
    is_near = ~others & (numbers["lift"] > 0)
    has_interval = ~has_no_interval(numbers)
    is_unidentifiable: pd.Series = table["verdict"] == UNIDENTIFIABLE
    return is_unidentifiable & (is_near | has_interval)


def head_table(table: pd.DataFrame, profile: pd.DataFrame, kv_group_size: int) -> pd.DataFrame:
    """A row per head: its tags, the strongest with its numbers, its profile and the reason.

    `primary` is the tag with the largest lift, except that tags that say only what kind of key
    gets the attention come after those that say which, and attention sinks last. A head without a
    tag is one of `NO_TYPE`, and its numbers are those of a relation that the text cannot decide,
    or else of that which came closest.

    Args:
        table: evidence with its thresholds.
        profile: a row per head, of `headscope.measure.profile.describe`.
        kv_group_size: heads that share keys and values.
    """
    ordered = table.loc[evidence_order(table)]
    best = closest_rows(table)
    ordered_tags = ordered[ordered["tagged"].astype(bool)]
    tags_by_type = ordered_tags.drop_duplicates([*_HEAD, "type"])
    is_tagged = best["tagged"].astype(bool)
    heads = best[[*_HEAD, "relation", "mass", *_NUMBERS, REPLICATES]].assign(
        primary=best["type"].where(is_tagged, UNCLASSIFIED),
        tags=types_of_heads(best, tags_by_type),
        reason=reasons(best),
        kv_group=best["head"] // kv_group_size,
        # until effects are weighed
        direct_effects="",
        direct_effect_lift=np.nan,
    )
    heads = with_cautions(heads, ordered_tags)
    heads = heads.merge(profile, on=_HEAD)[HEAD_COLUMNS]
    return with_no_type(heads, table)


def closest_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The first row of each head, of rows with thresholds in the order of `evidence_order`."""
    ordered = table.loc[evidence_order(table)]
    return ordered.drop_duplicates(_HEAD).sort_values(_HEAD)


def with_replicates(heads: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The heads with the column `replicates`, that of their primary tag or closest relation."""
    closest = closest_rows(table).set_index(_HEAD)[REPLICATES]
    places = pd.MultiIndex.from_frame(heads[_HEAD])
    return heads.assign(**{REPLICATES: closest.reindex(places).to_numpy()})


def with_no_type(heads: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The heads, with one of two words as the `primary` of those without a tag.

    `not identifiable` if the head would have a tag that the text cannot decide; see `is_undecided`.
    Else `unclassified`.
    """
    open_rows = table.loc[is_undecided(table), _HEAD]
    undecided = set(open_rows.itertuples(index=False, name=None))
    words = []
    for head in heads[_HEAD].itertuples(index=False, name=None):
        words.append(UNIDENTIFIABLE if head in undecided else UNCLASSIFIED)
    is_untyped = heads["primary"].isin(NO_TYPE).to_numpy(bool)
    primary = np.where(is_untyped, words, heads["primary"])
    return heads.assign(primary=primary.astype(object))


def countable_types(table: pd.DataFrame) -> list[str]:
    """The types that a head could have earned here, in the order of the rows with thresholds.

    Those with enough queries and blocks for at least one relation that gives a tag, and with enough
    hard queries where it asks for them. A count of heads of another type would be 0 without
    anything having been measured.
    """
    if table.empty:
        return []
    types = table.loc[is_decidable(table), "type"]
    return [str(name) for name in types.unique()]


def decidable_relations(table: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> dict[str, int]:
    """Number of `relations` that a text can decide for some head, `of` those that give tags.

    Args:
        table: rows with thresholds.
        thresholds: of all relations of the run, also of those that have no row.
    """
    decidable = table.loc[is_decidable(table), "id"]
    taggable = sum(limits.taggable for limits in thresholds.values())
    return {"relations": int(decidable.nunique()), "of": taggable}


def is_decidable(table: pd.DataFrame) -> pd.Series:
    """Rows with thresholds that have queries, blocks and hard queries enough for a tag."""
    has_interval = table["ci_low"].notna()
    has_queries = ~failures(table)[QUERIES]
    return has_interval & has_queries & ~is_open(Numbers(table))


def reasons(table: pd.DataFrame) -> list[str]:
    """For each row with thresholds a sentence: what the head does with which numbers, and for
    a near miss what failed.
    """
    numbers = Numbers(table)
    failing: list[list[str]] = [[] for _ in range(len(table))]
    rows = table.to_dict("records")
    for condition in CONDITIONS:
        margins = None if condition.margin is None else condition.margin(numbers)
        for i in np.flatnonzero(condition.fails(numbers)).tolist():
            failing[i].append(condition.message(rows[i], margins, i))
    sentences = []
    for row, messages in zip(rows, failing, strict=True):
        sentences.append(_reason(row, messages))
    return sentences


def _reason(row: Row, failing: Sequence[str]) -> str:
    name = row["id"]
    verdict = row["verdict"]
    mass = f"{row['mass']:.2f} of its attention on {row['meaning']}"
    control = f"control {row['control']:.2f}"
    lift = f"lift {row['lift']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}]"
    numbers = f"{mass} ({control}, {lift}, q {row['q_value']:.1g}, n {row['n']})"
    if has_no_interval(Numbers(row))[0]:
        lacking = undecided_in_words(row)
        return f"{name}: this text cannot decide it: {lacking}; {numbers}"
    if row["tagged"]:
        tag = f"{name}: {numbers}"
        general = row[GENERAL]
        return f"{tag}; general: {general}" if general else tag
    if verdict == UNIDENTIFIABLE:
        return f"{name}, or {alternative(row)}: this text cannot distinguish them; {numbers}"
    fails = INCONCLUSIVE if verdict == INCONCLUSIVE else "fails"
    conditions = "; ".join(failing)
    return f"closest to {name}: {numbers}; {fails}: {conditions}"


def tags_in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with tags, of rows with thresholds in the order of `evidence_order`."""
    tags = table[table["tagged"].astype(bool)]
    return tags.loc[evidence_order(tags)]


def evidence_order(table: pd.DataFrame) -> pd.Index:
    """The order of rows with thresholds: tags first, the vaguest last of them, then what came
    closest.
    """
    is_tagged = table["tagged"].astype(bool)
    # what the text cannot decide for any head is no nearer to a tag than a rejection
    is_far = (table["verdict"] == UNIDENTIFIABLE) & ~is_undecided(table)
    verdict_rank = table["verdict"].map(_RANKS).where(~is_tagged, 0)
    # a sink is not a function, and a broad relation says less than others
    vagueness = np.select(
        [~is_tagged, is_sink(table["id"]), table["broad"]],
        [0, 2, 1],
        0,
    )
    failed = failures(table).sum(axis=1)
    rank = pd.DataFrame(
        {
            "verdict": verdict_rank.where(~is_far, _RANKS[NO]),
            "failed": np.where(is_tagged, 0, failed),
            "vague": vagueness,
            "lift": -table["lift"],
        },
        index=table.index,
    )
    return rank.sort_values(["verdict", "failed", "vague", "lift"], kind="stable").index
