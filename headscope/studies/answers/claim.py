"""A name that a list gives to heads, held against what a run says of each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from headscope.attention_kind import KINDS
from headscope.errors import ChoiceError, RunError
from headscope.relations import head_types, relations_of
from headscope.relations.relation import Relation
from headscope.statistics.conditions import QUERIES, Row, open_in_words
from headscope.statistics.general_labels import distinct_tags, tag_names
from headscope.statistics.result import Result
from headscope.statistics.tags import UNIDENTIFIABLE, evidence_order

HOLDS, ANOTHER, NO_ACCOUNT = "holds", "another type", "no account"
CLAIM_VERDICTS = (HOLDS, ANOTHER, UNIDENTIFIABLE, NO_ACCOUNT)
"""The verdicts on a head and a name that it was given."""


@dataclass(frozen=True)
class Claim:
    """A head type, or one of its relations or general labels as `type/relation`."""

    name: str

    @property
    def type(self) -> str:
        """The head type that it is of."""
        return self.name.partition("/")[0]

    @cached_property
    def relations(self) -> dict[str, None]:
        """Full names of the relations that the name speaks of, in the order of the table."""
        every = [
            relation for kind in KINDS.values() for relation in relations_of([self.type], kind)
        ]
        if "/" not in self.name:
            return dict.fromkeys(relation.id for relation in every)
        return dict.fromkeys(r.id for r in every if self.name in (r.id, *_general_names(r)))

    def check(self) -> None:
        """Refuse what is neither a head type nor one of its relations or general labels.

        Raises:
            ChoiceError: it is none.
        """
        if self.type not in head_types():
            raise ChoiceError("head type", self.type, head_types())
        if not self.relations:
            raise ChoiceError("relation", self.name, Claim(self.type).relations)

    def check_asked(self, run: Result) -> None:
        """Refuse a name that a run did not ask of its heads.

        Raises:
            RunError: it asked for no such type or relation.
        """
        if not self.relations.keys() & run.rules.keys():
            types = dict.fromkeys(name.partition("/")[0] for name in run.rules)
            raise RunError(
                f"this run of {run.name} did not ask for {self.name}; its head types are "
                f"{', '.join(types)}"
            )

    def is_of(self, rows: pd.DataFrame) -> pd.Series:
        """Marks the rows of evidence that the name speaks of."""
        return (rows["type"] + "/" + rows["relation"]).isin([*self.relations])

    def verdict(self, rows: pd.DataFrame) -> tuple[str, pd.Series | None]:
        """The verdict on a head, and the row of its evidence that says why; None where none does.

        A relation that the text cannot decide comes before another type: that is no answer to it.

        Args:
            rows: a head's rows of `headscope.statistics.tags.with_rules`.
        """
        ordered = rows.loc[evidence_order(rows)]
        claimed, tagged = ordered[self.is_of(ordered)], ordered[ordered["tagged"].astype(bool)]
        held = claimed[claimed["tagged"].astype(bool)]
        if len(held):
            return HOLDS, held.iloc[0]
        if claimed.empty:  # the text holds no query of it
            return UNIDENTIFIABLE, None
        undecided = claimed[(claimed["verdict"] == UNIDENTIFIABLE) | ~_has_queries(claimed)]
        if (claimed["verdict"] == UNIDENTIFIABLE).any() or len(undecided) == len(claimed):
            return UNIDENTIFIABLE, undecided.iloc[0]
        return (ANOTHER, tagged.iloc[0]) if len(tagged) else (NO_ACCOUNT, claimed.iloc[0])


def _general_names(relation: Relation) -> list[str]:
    """The full names of the labels above a relation's own."""
    names = () if relation.label is None else relation.label.general
    return [f"{relation.type}/{name}" for name in names]


def _has_queries(rows: pd.DataFrame) -> pd.Series:
    """Rows with queries enough, in documents enough, for a tag."""
    return rows["taggable"] & (rows["n"] >= rows["fewest"]) & rows["ci_low"].notna()


def undecided_in_words(row: Row) -> str:
    """The reason why a text cannot decide a relation."""
    if row["verdict"] == UNIDENTIFIABLE:
        return open_in_words(row)
    if not row["taggable"]:
        return "this relation is reported and never gives a tag"
    if row["n"] < row["fewest"]:
        return f"the text holds {row['n']} {QUERIES} of it, and a tag needs {row['fewest']}"
    return f"its {row['n']:,} {QUERIES} lie in too few documents for an interval"


def names_of_tags(rows: pd.DataFrame) -> list[str]:
    """The names of a head's tags, the first that of its primary type."""
    ordered = rows.loc[evidence_order(rows)]
    return [*dict.fromkeys(tag_names(distinct_tags(ordered)))]
