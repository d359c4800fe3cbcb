"""Lists of heads: the strongest of each type, those to show examples of, and those without a tag.

Heads without a tag to report are `not identifiable`, or partial sinks.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import pandas as pd

from headscope.measure.example import ExampleRequest
from headscope.relations.relation import MIN_QUERIES, PARTIAL_SINK, SINK, Relation
from headscope.statistics.conditions import undecided_in_words
from headscope.statistics.in_words import alternatives
from headscope.statistics.tags import UNIDENTIFIABLE, is_sink, is_undecided

TAGS_PER_HEAD = 3
"""Relations that a head is shown with."""
_HEAD = ["layer", "head"]


def strongest(evidence: pd.DataFrame) -> pd.DataFrame:
    """The tagged heads of each type with the evidence of their best relation, the best first.

    A head has one row for each type whose tag it earned: that of the type's own relation with the
    largest lift, whatever its primary type is. Rows are in the order of that lift, except that
    the sink comes last, as it does when a head's primary type is chosen.
    """
    return _best_first(_tagged(evidence)).drop_duplicates([*_HEAD, "type"])


def best_heads(evidence: pd.DataFrame) -> pd.DataFrame:
    """The best head of each relation, that with the largest lift first.

    It has the largest lift of the tagged heads, or of all heads if none is tagged.
    """
    is_untagged = ~evidence["tagged"].astype(bool)
    tagged_first = _by_lift(evidence.assign(_untagged=is_untagged), "_untagged")
    best = tagged_first.drop_duplicates(["type", "relation"])
    return _by_lift(best.drop(columns="_untagged"))


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
    # readers look through the examples head by head, whatever they are of
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
    is_untagged = ~has_any_tag(evidence)
    candidates = evidence[is_untagged & can_give_tag]
    return _by_lift(candidates).drop_duplicates(_HEAD)


def has_any_tag(evidence: pd.DataFrame) -> pd.Series:
    """True for each row of a head with a tag."""
    is_tag = evidence["tagged"].astype(bool)
    is_tagged: pd.Series = is_tag.groupby([evidence["layer"], evidence["head"]]).transform("any")
    return is_tagged


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
        descriptions.append(alternatives(row))
        lacking.append(undecided_in_words(row))
        counts.append("too few documents" if isnan(row["ci_low"]) else f"{row['hard_n']:,.0f}")
    return rows.assign(
        description=pd.Series(descriptions, rows.index, dtype=object),
        why=pd.Series(lacking, rows.index, dtype=object),
        hard_queries=pd.Series(counts, rows.index, dtype=object),
    )


def partial_sinks(table: pd.DataFrame) -> pd.DataFrame:
    """Heads without a tag of a sink, and the attention sink below its threshold with the largest
    mass.

    Returns:
        A row of the evidence with its thresholds per such head, and the place in words as
        `description`.
    """
    sinks = table[table["type"] == SINK]
    # the place is the beginning of the meaning
    descriptions = sinks["meaning"].str.split(",", n=1).str[0]
    sinks = sinks.assign(description=descriptions)
    is_large = sinks["mass"].between(PARTIAL_SINK, sinks["threshold"], inclusive="left")
    is_untagged = ~has_any_tag(sinks)
    rows = sinks[is_untagged & is_large]
    largest_first = rows.sort_values("mass", ascending=False, kind="stable")
    return largest_first.drop_duplicates(_HEAD).sort_values(_HEAD)


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
