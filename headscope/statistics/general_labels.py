"""General labels: relations that a head does not distinguish share one name and count once.

A head that attends to the head of its phrase earns a tag for every label that the text can decide.
Its general label is the lowest in the tree above all labels that the head does not distinguish;
see `headscope.relations.types.syntactic.LABEL_TREE`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headscope.measure.tally import Tally
from headscope.relations.relation import Label, Relation
from headscope.statistics.columns import GENERAL
from headscope.statistics.relation_sums import TallySums, lift_difference

TIMES_LABEL = 2.0
"""Least lift of a specific label in units of any other's. A head with 0.40 for numbers and 0.31 for
determiners differs significantly and does one thing."""
_HEAD = ["layer", "head"]
_MEMBERS = " ("
"""Parts the name of a general label from those that it stands for."""


def general_labels(
    evidence: pd.DataFrame, relations: Sequence[Relation], tally: Tally
) -> pd.Series:
    """The `general` column: the label that stands for a tag, with what it stands for.

    Such as `phrase-head:dep>head (det, case)`; empty of a tag that is specific, and of no tag.
    """
    general = pd.Series("", index=evidence.index, dtype=object)
    by_id: dict[str, Relation] = {}
    labels: dict[str, Label] = {}
    family_of: dict[str, str] = {}
    for relation in relations:
        by_id[relation.id] = relation
        if relation.label is not None:
            labels[relation.id] = relation.label
            family_of[relation.id] = relation.label.general[0]
    # only families in which a head has a tag need a general label
    families = evidence["id"].map(family_of)
    rows = evidence.assign(family=families)[families.notna()]
    tags = rows[rows["tagged"].astype(bool)]
    group_key = [*_HEAD, "family"]
    families_with_tag = tags[group_key].drop_duplicates()
    rows = rows.merge(families_with_tag, on=group_key)
    # the intervals of differences are from the sums, block by block
    sums = TallySums(tally)
    for (layer, head, family), members in rows.groupby(group_key, sort=False):
        column = tally.numbers.index(layer) * tally.heads + head
        ids = _undistinguished(members, by_id, sums, column)
        if len(ids) < 2:
            continue
        is_of_head = (tags["layer"] == layer) & (tags["head"] == head)
        is_of_group = is_of_head & (tags["family"] == family)
        general[tags.index[is_of_group]] = _name([labels[name] for name in ids])
    return general


def tag_names(evidence: pd.DataFrame) -> pd.Series:
    """The full name of each row's tag: the general label if it has one, else the relation's.

    >>> row = {"type": "syntactic", "relation": "det:dep>head", "general": ""}
    >>> general = row | {"general": "phrase-head:dep>head (det, case)"}
    >>> tag_names(pd.DataFrame([row, general])).tolist()
    ['syntactic/det:dep>head', 'syntactic/phrase-head:dep>head']
    """
    return evidence["type"] + "/" + shown_relations(evidence)


def shown_relations(evidence: pd.DataFrame) -> pd.Series:
    """The name of each row's relation, or of the general label that stands for it."""
    # a general label without the labels that it stands for; empty if it is missing
    labels = []
    for name in evidence[GENERAL]:
        labels.append(name.partition(_MEMBERS)[0] if isinstance(name, str) else "")
    general = pd.Series(labels, evidence.index, dtype=object)
    return general.where(general != "", evidence["relation"])


def with_shown_relations(heads: pd.DataFrame, evidence: pd.DataFrame) -> pd.DataFrame:
    """Heads whose `relation` is the general label if it has one."""
    key = [*_HEAD, "relation"]
    tags = evidence[evidence["tagged"].astype(bool)]
    labels = tags[key].assign(label=shown_relations(tags))
    labels = labels.drop_duplicates(key)
    merged = heads[key].merge(labels, on=key, how="left")
    label = merged["label"].set_axis(heads.index)
    return heads.assign(relation=label.fillna(heads["relation"]))


def distinct_tags(evidence: pd.DataFrame) -> pd.DataFrame:
    """The rows of tags, of those with one general label the first."""
    tags = evidence[evidence["tagged"].astype(bool)]
    with_names = tags[_HEAD].assign(name=tag_names(tags))
    return tags[~with_names.duplicated()]


def _undistinguished(
    members: pd.DataFrame, relations: dict[str, Relation], sums: TallySums, column: int
) -> list[str]:
    """Tags of a head in one family, and labels that it does not distinguish from the strongest."""
    members = members.sort_values("lift", ascending=False, kind="stable")
    strongest = members[members["tagged"].astype(bool)].iloc[0]
    first = sums.of(relations[strongest["id"]])
    names = []
    for row in members.itertuples():
        if not row.tagged:
            # a label without a tag needs a lift above 0, and a head that is not mostly wrong at
            # hard queries: otherwise the head does not attend to it at all
            if not row.ci_low > 0 or row.hard_high < 0.5:
                continue
            # the head distinguishes it if the strongest label's lift is at least twice as large,
            # and larger by more than the error of their difference
            second = sums.of(relations[row.id])
            if (
                first is not None
                and second is not None
                and strongest["lift"] >= TIMES_LABEL * row.lift
                and lift_difference(first, second, column).low[0] > 0
            ):
                continue
        names.append(str(row.id))
    return names


def _name(labels: Sequence[Label]) -> str:
    """The lowest label of the tree above all of these, and these."""
    shared = []
    paths = [label.general for label in labels]
    # the paths can differ in length
    for names in zip(*paths, strict=False):
        if len(set(names)) == 1:
            shared.append(names[0])
    members = ", ".join(label.name for label in labels)
    return f"{shared[-1]}{_MEMBERS}{members})"
