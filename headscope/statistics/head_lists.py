"""Lists of heads: the strongest of each type and relation, and those without a tag to report.

The latter are `not identifiable`, because the text holds too few queries where a baseline is
wrong, or partial sinks, whose mass on the sink is below the threshold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan

import pandas as pd

from headscope.measure.example import ExampleRequest
from headscope.relations import head_types
from headscope.relations.relation import MIN_QUERIES, PARTIAL_SINK, SINK, Relation, Threshold
from headscope.statistics.conditions import Row, failures, undecided_in_words
from headscope.statistics.tags import UNIDENTIFIABLE, is_sink, is_undecided, with_thresholds
from headscope.statistics.wording import baseline_in_words

TAGS_PER_HEAD = 3
"""Relations that a head is shown with."""
_DEPENDENCY = re.compile(r"(?P<label>.+):(?P<way>head>dep|dep>head)$")
_HEAD = ["layer", "head"]


def strongest(evidence: pd.DataFrame) -> pd.DataFrame:
    """The tagged heads of each type with the evidence of their best relation, the best first.

    A head has one row for each type whose tag it earned: that of the type's own relation with the
    largest lift, whatever its primary type is. Rows are in the order of that lift, except that
    the sink comes last, as it does when a head's primary type is chosen.
    """
    return _best_first(_tagged(evidence)).drop_duplicates([*_HEAD, "type"])


def best_heads(evidence: pd.DataFrame) -> pd.DataFrame:
    """The head with the largest lift of each relation, tagged or not, the largest first."""
    return _by_lift(evidence).drop_duplicates(["type", "relation"])


def wanted_examples(evidence: pd.DataFrame, relations: Sequence[Relation]) -> list[ExampleRequest]:
    """Relations to show examples of: each head's best, three at most, head by head.

    The sink needs no example if a head has another tag. Of a head without
    a tag it is the relation with the largest lift that could have earned one.
    """
    best = _best_first(_tagged(evidence))
    tags = best.groupby(_HEAD, sort=True).head(TAGS_PER_HEAD)
    names = tags["type"] + "/" + tags["relation"]
    is_of_sink = is_sink(names)
    by_head = is_of_sink.groupby([tags["layer"], tags["head"]])
    has_only_sinks = by_head.transform("all").astype(bool)
    of_tags = tags[has_only_sinks | ~is_of_sink]
    nearest = _nearest(evidence, relations)
    number_of = {relation.id: number for number, relation in enumerate(relations)}
    requests = []
    for row in (*of_tags.itertuples(), *nearest.itertuples()):
        relation = number_of[f"{row.type}/{row.relation}"]
        requests.append(ExampleRequest(int(row.layer), int(row.head), relation))
    return sorted(requests, key=lambda want: (want.layer, want.head))


def _nearest(evidence: pd.DataFrame, relations: Sequence[Relation]) -> pd.DataFrame:
    """For each head without a tag the relation with the largest lift that could give one."""
    names = evidence["type"] + "/" + evidence["relation"]
    taggable = [relation.id for relation in relations if relation.thresholds.taggable]
    has_queries = evidence["n"] >= MIN_QUERIES
    can_give_tag = names.isin(taggable) & has_queries & ~is_sink(names)
    is_untagged = ~_head_has_tag(evidence)
    candidates = evidence[is_untagged & can_give_tag]
    return _by_lift(candidates).drop_duplicates(_HEAD)


def _head_has_tag(evidence: pd.DataFrame) -> pd.Series:
    """True for each row of a head with a tag."""
    is_tag = evidence["tagged"].astype(bool)
    is_tagged: pd.Series = is_tag.groupby([evidence["layer"], evidence["head"]]).transform("any")
    return is_tagged


def _tagged(evidence: pd.DataFrame) -> pd.DataFrame:
    return evidence[evidence["tagged"].astype(bool)]


def _best_first(evidence: pd.DataFrame) -> pd.DataFrame:
    sinks = is_sink(evidence["type"] + "/" + evidence["relation"])
    return _by_lift(evidence.assign(_sink=sinks), "_sink").drop(columns="_sink")


def _by_lift(evidence: pd.DataFrame, *before: str) -> pd.DataFrame:
    # equal lifts stand in the order of the heads, so that the order never depends on the table's
    columns = [*before, "lift", *_HEAD]
    ascending = [name != "lift" for name in columns]
    return evidence.sort_values(columns, ascending=ascending, kind="stable")


def undecided(
    heads: pd.DataFrame, evidence: pd.DataFrame, thresholds: Mapping[str, Threshold]
) -> pd.DataFrame:
    """The heads that are `not identifiable`, with the relation that the text cannot decide.

    Returns:
        A row per such head by its name, in the order of the heads: the evidence of the relation
        with the largest lift of those, in `description` what it cannot be told from, in `why` what
        the text lacks, and in `hard_queries` the number of hard queries.
    """
    if not (evidence["verdict"] == UNIDENTIFIABLE).any():
        no_heads = heads.head(0)[_HEAD]
        return no_heads.assign(description="", why="", hard_queries="")
    table = with_thresholds(evidence, thresholds)
    candidates = table[is_undecided(table)]
    candidates = candidates.sort_values("lift", ascending=False, kind="stable")
    candidates = candidates.drop_duplicates(_HEAD).set_index(_HEAD)
    undecided_heads = heads.loc[heads["primary"] == UNIDENTIFIABLE, _HEAD]
    rows = undecided_heads.join(candidates, on=_HEAD, how="inner")
    descriptions, lacking, counts = [], [], []
    for row in rows.to_dict("records"):
        descriptions.append(alternatives(row["relation"], row["baseline"]))
        lacking.append(undecided_in_words(row))
        counts.append(_hard_queries(row))
    return rows.assign(
        description=pd.Series(descriptions, rows.index, dtype=object),
        why=pd.Series(lacking, rows.index, dtype=object),
        hard_queries=pd.Series(counts, rows.index, dtype=object),
    )


def _hard_queries(row: Row) -> str:
    if isnan(row["ci_low"]):
        return "too few documents"
    return f"{row['hard_n']:.0f} of {row['n']}"


def alternatives(relation: str, baseline: str) -> str:
    """The two things a head may be doing, in words: the relation, or the baseline or chance.

    >>> alternatives("obj:dep>head", "nearest-VERB")
    'obj → its head, or nearest verb'
    >>> alternatives("det:head>dep", "2-words-back")
    'head → its det, or 2 words back'
    """
    other = baseline_in_words(baseline) or "chance"
    return f"{_relation(relation)}, or {other}"


def _relation(name: str) -> str:
    match = _DEPENDENCY.match(name)
    if match is None:
        return name
    label = match["label"]
    if match["way"] == "dep>head":
        return f"{label} → its head"
    return f"head → its {label}"


def partial_sinks(evidence: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> pd.DataFrame:
    """Heads without a tag of a sink, and the attention sink below its threshold with the largest
    mass.

    Returns:
        A row of the evidence per such head, with `threshold`, and the place in words as
        `description`.
    """
    sinks = evidence[evidence["type"] == SINK]
    ids = sinks["type"] + "/" + sinks["relation"]
    threshold_of: dict[str, float] = {}
    description_of: dict[str, str] = {}
    for name, limits in thresholds.items():
        description, _, _ = limits.meaning.partition(",")
        threshold_of[name] = limits.threshold
        description_of[name] = description
    sinks = sinks.assign(
        threshold=ids.map(threshold_of).astype(float),
        description=ids.map(description_of),
    )
    is_large = sinks["mass"].between(PARTIAL_SINK, sinks["threshold"], inclusive="left")
    rows = sinks[~_head_has_tag(sinks) & is_large]
    rows = rows.sort_values("mass", ascending=False, kind="stable")
    return rows.drop_duplicates(_HEAD).sort_values(_HEAD)


LOWER, HIGHER = 0.9, 1.1


@dataclass(frozen=True)
class TagCounts:
    """Numbers of tags, a head once for each type, with thresholds a tenth lower and higher."""

    lower: int
    now: int
    higher: int


def tag_counts(evidence: pd.DataFrame, thresholds: Mapping[str, Threshold]) -> dict[str, TagCounts]:
    """The tags of functional types, and those of attention sinks, by what they are called.

    Sinks are counted separately, because they are many. Kinds without a tag at the lower
    thresholds are left out.
    """
    table = with_thresholds(evidence, thresholds)
    sink_types = [kind.name for kind in head_types().values() if not kind.functional]
    of_sinks = table["type"].isin(sink_types)
    counts = {}
    for noun, rows in (
        ("tags", table[~of_sinks]),
        ("tags of attention sinks", table[of_sinks]),
    ):
        count = TagCounts(
            lower=_tags_at(rows, LOWER),
            now=_tags_at(rows, 1.0),
            higher=_tags_at(rows, HIGHER),
        )
        if count.lower:
            counts[noun] = count
    return counts


def _tags_at(table: pd.DataFrame, factor: float) -> int:
    """Heads with a tag of each type, summed over types, if thresholds are multiplied by a
    factor.
    """
    varied = table.assign(threshold=table["threshold"] * factor)
    tagged = varied[~failures(varied).any(axis=1)]
    return len(tagged.drop_duplicates(["type", "layer", "head"]))
