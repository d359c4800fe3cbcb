"""The strongest heads of a type or a relation: one order for every table and picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from headscope.measure.example import ExampleRequest
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.statistics.tags import is_sink

TAGS_PER_HEAD = 3
"""Relations that a head is shown with."""
_HEAD = ["layer", "head"]


def strongest(evidence: pd.DataFrame) -> pd.DataFrame:
    """The tagged heads of each type with the evidence of their best relation, the best first.

    A head has one row for each type whose tag it earned: that of the type's own relation with the
    largest lift, whatever its primary type is. Rows are in the order of that lift, except that
    resting on the first token comes last, as it does when a head's primary type is chosen.
    """
    return _best_first(_tagged(evidence)).drop_duplicates([*_HEAD, "type"])


def best_heads(evidence: pd.DataFrame) -> pd.DataFrame:
    """The head with the largest lift of each relation, tagged or not, the largest first."""
    return _by_lift(evidence).drop_duplicates(["type", "relation"])


def wanted_examples(evidence: pd.DataFrame, relations: Sequence[Relation]) -> list[ExampleRequest]:
    """Relations to show examples of: each head's best, three at most, head by head.

    Resting on the first token needs no example where a head does anything else. Of a head without
    a tag it is the relation with the largest lift that could have earned one.
    """
    index = {relation.id: i for i, relation in enumerate(relations)}
    rows = _best_first(_tagged(evidence)).groupby(_HEAD, sort=True).head(TAGS_PER_HEAD)
    requests = []
    for (layer, head), tags in rows.groupby(_HEAD, sort=True):
        ids = tags["type"] + "/" + tags["relation"]
        other = ids[~is_sink(ids)]
        relation_ids = other if len(other) else ids
        requests += [ExampleRequest(int(layer), int(head), index[name]) for name in relation_ids]
    nearest = _nearest(evidence, relations)
    requests += [ExampleRequest(layer, head, index[name]) for layer, head, name in nearest]
    return sorted(requests, key=lambda want: (want.layer, want.head))


def _nearest(
    evidence: pd.DataFrame, relations: Sequence[Relation]
) -> Iterator[tuple[int, int, str]]:
    names = evidence["type"] + "/" + evidence["relation"]
    askable = names.isin([relation.id for relation in relations if relation.rule.taggable])
    bare = ~evidence["tagged"].astype(bool).groupby([evidence[k] for k in _HEAD]).transform("any")
    open_to_all = evidence[bare & askable & (evidence["n"] >= MIN_QUERIES) & ~is_sink(names)]
    for row in _by_lift(open_to_all).drop_duplicates(_HEAD).itertuples():
        yield int(row.layer), int(row.head), f"{row.type}/{row.relation}"


def _tagged(evidence: pd.DataFrame) -> pd.DataFrame:
    return evidence[evidence["tagged"].astype(bool)]


def _best_first(evidence: pd.DataFrame) -> pd.DataFrame:
    resting = is_sink(evidence["type"] + "/" + evidence["relation"])
    return _by_lift(evidence.assign(_resting=resting), "_resting").drop(columns="_resting")


def _by_lift(evidence: pd.DataFrame, *before: str) -> pd.DataFrame:
    # equal lifts stand in the order of the heads, so that the order never depends on the table's
    return evidence.sort_values(
        [*before, "lift", *_HEAD],
        ascending=[True] * len(before) + [False, True, True],
        kind="stable",
    )
