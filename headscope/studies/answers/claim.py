"""A name that a list gives to heads, held against what a run says of each of them."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

import pandas as pd

from headscope.attention_kind import KINDS
from headscope.errors import ChoiceError, RunError
from headscope.heads import relation_of
from headscope.relations import head_types, relations_of
from headscope.statistics.conditions import QUERIES, Row, open_in_words
from headscope.statistics.general_labels import distinct_tags, tag_names
from headscope.statistics.result import Result
from headscope.statistics.tags import UNIDENTIFIABLE, evidence_order

HOLDS, ANOTHER, NO_ACCOUNT = "holds", "another type", "no account"
CLAIM_VERDICTS = (HOLDS, ANOTHER, UNIDENTIFIABLE, NO_ACCOUNT)
"""The verdicts on a head and a name that it was given."""
NEAREST = 3


@dataclass(frozen=True)
class Claim:
    """A head type, or one of its relations as `type/relation`."""

    name: str

    @property
    def type(self) -> str:
        """The head type."""
        return self.name.partition("/")[0]

    def check(self) -> None:
        """Refuse what is neither a head type nor one of its relations.

        Raises:
            ChoiceError: it is neither; the nearest names come first in the message.
        """
        types = [*head_types()]
        relations = dict.fromkeys(
            relation.id for kind in KINDS.values() for relation in relations_of(None, kind)
        )
        if self.name in types or self.name in relations:
            return
        of_the_type = [name for name in relations if name.startswith(f"{self.type}/")]
        known = of_the_type if "/" in self.name and of_the_type else [*types, *relations]
        near = get_close_matches(self.name, known, NEAREST)
        choices = dict.fromkeys([*near, *(of_the_type if known is of_the_type else types)])
        raise ChoiceError("head type or type/relation", self.name, choices)

    def check_asked(self, run: Result) -> None:
        """Refuse a name that a run did not ask of its heads.

        Raises:
            RunError: it asked for no such type or relation.
        """
        relations = sorted({relation_of(name) for name in run.rules})
        types = sorted({name.partition("/")[0] for name in relations})
        if self.type not in types:
            raise RunError(
                f"this run of {run.name} did not ask for {self.type}, but for {', '.join(types)}"
            )
        of_the_type = [name for name in relations if name.startswith(f"{self.type}/")]
        if "/" in self.name and self.name not in of_the_type:
            raise RunError(
                f"this run of {run.name} did not ask for {self.name}, but for "
                f"{', '.join(of_the_type)}"
            )

    def is_of(self, rows: pd.DataFrame) -> pd.Series:
        """Marks the rows of evidence that the name speaks of."""
        if "/" not in self.name:
            return rows["type"] == self.name
        return (rows["type"] + "/" + rows["relation"].map(relation_of)) == self.name

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
