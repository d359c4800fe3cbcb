"""Tags from evidence: verdicts on each head and relation, cautions on tags, and their order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int
from numpy import ndarray

from headscope.relations.relation import Relation, Threshold
from headscope.statistics.columns import (
    EFFECT_NUMBERS,
    EVIDENCE_COLUMNS,
    GENERAL,
    PRELIMINARY,
    TEXT_COLUMNS,
)
from headscope.statistics.condition import Numbers
from headscope.statistics.conditions import (
    HARD_QUERIES,
    Q_VALUE,
    QUERIES,
    decided_failures,
    failures,
    has_no_interval,
    inconclusive,
    is_open,
)
from headscope.statistics.replication import replicates
from headscope.stimuli.stimulus import MIN_DOCUMENTS

UNCLASSIFIED = "unclassified"
NO_TAG = "no tag, closest to"
"""Words before the closest relation of a head without a tag."""
TAGGED, UNIDENTIFIABLE, INCONCLUSIVE, NO = "tagged", "not identifiable", "inconclusive", "no"
VERDICTS = (TAGGED, UNIDENTIFIABLE, INCONCLUSIVE, NO)
"""The four verdicts on a head and a relation."""
OPEN = (UNIDENTIFIABLE, INCONCLUSIVE)
"""Verdicts that are neither a tag nor a rejection."""
NO_TYPE = (UNIDENTIFIABLE, UNCLASSIFIED)
"""Primary types of heads without a tag; see `headscope.statistics.head_table`."""

FEWEST_DOCUMENTS = MIN_DOCUMENTS
"""Documents of text below which a tag is preliminary: its interval is of these documents alone."""
FEWEST_HARD = 30
"""Hard queries below which a tag is preliminary. A tag needs 10; the text decides more with 30."""
SINK_RELATIONS = ("sink/first-token", "sink/position")
"""Relations of attention sinks, which are not a function of a head."""

_THRESHOLDS = ("threshold", "beat_baseline_by", "times_chance", "surrogate_share", "sign")
_PAIRED = {
    "paired_mass": "mass",
    "paired_error": "mass_error",
}
"""Columns of a relation's paired relation at the same head, and those that they have there."""
_RANKS = {verdict: rank for rank, verdict in enumerate(VERDICTS)}


def is_sink(relation: pd.Series) -> pd.Series:
    """Mark relations, by their full names, that are attention sinks."""
    return relation.isin(SINK_RELATIONS)


def thresholds_of(relations: Sequence[Relation]) -> dict[str, Threshold]:
    """Thresholds of relations by their full names."""
    return {relation.id: relation.thresholds for relation in relations}


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


def with_verdicts(table: pd.DataFrame) -> pd.DataFrame:
    """Evidence with thresholds and the columns that follow from them.

    These are `verdict`, `tagged`, `replicates` and `text_verdict`.
    """
    judged = table.assign(replicates=replicates(table))
    verdict = verdicts(judged)
    # what the verdict would be without the challenge set
    of_text = table.assign(
        **{column: table[name] for column, name in TEXT_COLUMNS.items() if name in table}
    )
    of_text = of_text.assign(replicates=replicates(of_text))
    return judged.assign(
        verdict=verdict,
        tagged=verdict == TAGGED,
        text_verdict=verdicts(of_text),
    )


def verdicts(table: pd.DataFrame) -> pd.Series:
    """The `verdict` column of evidence with its thresholds.

    `tagged` if every condition holds; `not identifiable` if there are too few blocks of documents
    for an interval, or if all hold but those that the text cannot decide, as it has too few queries
    where the baseline or the surrogate is wrong; `inconclusive` if the interval of every failed
    condition includes its threshold, or if the condition on another text alone fails; else `no`.
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
    """Rows with verdicts that are `not identifiable` and might have a tag on other text.

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


def is_preliminary(table: pd.DataFrame, few_documents: Collection[str] = ()) -> pd.Series:
    """True for each tag that rests on fewer than 8 documents or fewer than 30 hard queries.

    Args:
        table: evidence with thresholds and verdicts. Hard queries count only for relations whose
            tag requires more than the baselines reach.
        few_documents: full names of the relations that were measured on too few documents.
    """
    is_compared = table["beat_baseline_by"].notna()
    has_few_hard = is_compared & (table["hard_n"] < FEWEST_HARD)
    has_few_documents = table["id"].isin(few_documents)
    is_tag = table["tagged"].astype(bool)
    return is_tag & (has_few_hard | has_few_documents)


def is_below_baseline(evidence: pd.DataFrame) -> pd.Series:
    """True for each tag of a head whose hit rate is below that of the relation's baseline.

    The hit rate is the share of queries at which a head's largest attention is on a target. If the
    baseline is right at a larger share, the tag rests on the hard queries, where it is wrong.
    """
    hit_rate = evidence["hit_rate"].astype(float)
    baseline_rate = evidence["baseline_rate"].astype(float)
    return evidence["tagged"].astype(bool) & (hit_rate < baseline_rate)


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


def tags_in_order(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with tags in the order of `evidence_order`."""
    tags = table[table["tagged"].astype(bool)]
    return tags.loc[evidence_order(tags)]


def evidence_order(table: pd.DataFrame) -> pd.Index:
    """The order of rows with verdicts: tags first, the vaguest last of them, then the closest."""
    is_tagged = table["tagged"].astype(bool)
    # what the text cannot decide for any head is as far from a tag as a rejection
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
