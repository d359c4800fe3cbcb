"""Five lines on a head: what it is, where it looks, how often it is right, how sure, an example."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan

import pandas as pd

from headscope.measure.example import Example
from headscope.statistics.conditions import QUERIES, Row, failing, open_in_words
from headscope.statistics.heuristic_words import rule_in_words
from headscope.statistics.tags import NARROW, NO_TAG, UNIDENTIFIABLE, evidence_order
from headscope.statistics.untagged import alternatives
from headscope.studies.answers.claim import (
    ANOTHER,
    HOLDS,
    NO_ACCOUNT,
    Claim,
    names_of_tags,
    undecided_in_words,
)
from headscope.studies.answers.short_example import short_example

MARKS_MEAN = "best: the mass of one of its best queries, [[query]], «target»; … is left out"

MOST_FAILED = 4
"""Conditions that are named of those that fail."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What is said of one head."""

    name: str
    rows: pd.DataFrame
    """Its rows of `headscope.statistics.tags.with_rules`."""
    row: Row
    """The one that the answer rests on."""
    meaning: str
    """What its relation asks for, in words."""
    example: Example | None
    """One of the head's best queries, if any was read."""
    claim: Claim | None = None
    """A name that the head was given."""
    verdict: str = ""
    """On that name."""
    is_asked: bool = True
    """False where the text holds no query of that name, and the row is of something else."""

    @classmethod
    def of(
        cls,
        name: str,
        rows: pd.DataFrame,
        meanings: dict[str, str],
        examples: list[Example],
        claim: Claim | None,
    ) -> Answer:
        """The answer of a head's evidence.

        Args:
            name: of the head.
            rows: its rows of `headscope.statistics.tags.with_rules`.
            meanings: of relations, by their full names.
            examples: of the head.
            claim: a name that it was given.
        """
        verdict, row = ("", None) if claim is None else claim.verdict(rows)
        is_asked = claim is None or row is not None
        decisive = rows.loc[evidence_order(rows)].iloc[0] if row is None else row
        values = {str(column): value for column, value in decisive.items()}
        best = sorted(
            (example for example in examples if example.kind == "best"),
            key=lambda example: (example.relation != values["id"], -example.mass),
        )
        meaning = meanings[values["id"]]
        example = best[0] if best else None
        return cls(name, rows, values, meaning, example, claim, verdict, is_asked)

    @property
    def tags(self) -> list[str]:
        """The names of the head's tags, the first that of its primary type."""
        return names_of_tags(self.rows)

    @property
    def title(self) -> str:
        """What the head is; of a name that it was given, first the verdict on that."""
        tags, row = ", ".join(self.tags), self.row
        if self.claim is not None:
            claimed = row["id"] if self.is_asked else self.claim.name
            return {
                HOLDS: f"{HOLDS}: {tags}",
                ANOTHER: f"{ANOTHER}: {tags}",
                UNIDENTIFIABLE: f"{UNIDENTIFIABLE}: {claimed}" + f"; tagged {tags}" * bool(tags),
                NO_ACCOUNT: f"{NO_ACCOUNT}: no tag, and not {claimed}",
            }[self.verdict]
        parts = [*[tags][: bool(tags)], *self._undecided()]
        narrow = f"{NARROW}, " * (row["verdict"] == NARROW)
        return "; ".join(parts) or f"{narrow}{NO_TAG} {row['id']}"

    def _undecided(self) -> list[str]:
        """The relation of largest lift that the text cannot tell from a rule, if there is any."""
        rows = self.rows[self.rows["verdict"] == UNIDENTIFIABLE]
        rows = rows.sort_values("lift", ascending=False, kind="stable")
        others = f" (and {len(rows) - 1} more)" * (len(rows) > 1)
        names = rows[["relation", "baseline"]].head(1).itertuples(index=False)
        return [f"{UNIDENTIFIABLE}: {alternatives(*pair)}{others}" for pair in names]

    def lines(self) -> Iterator[str]:
        """The five lines, all but the first with a word before them that says what they hold."""
        yield f"{self.name}: {self.title}"
        yield (
            f"  looks: {self.row['mass']:.2f} of its attention is on {self.meaning}; "
            f"control {self.row['control']:.2f}"
        )
        yield f"  right: {_accuracy(self.row)}"
        yield f"  {self._certainty()}"
        yield f"  best:  {self.best}"

    @property
    def best(self) -> str:
        """One of the head's best queries in a line, with its mass."""
        if self.example is None:
            return "no example was read"
        about = "" if self.example.relation == self.row["id"] else f" ({self.example.relation})"
        return f"{self.example.mass:.2f}{about} {short_example(self.example)}"

    def _certainty(self) -> str:
        """How sure the tag is; without one what it lacks, or what the text does."""
        row = self.row
        if self.claim is not None and self.verdict == ANOTHER:
            return f"claim: {_refusal(self.claim, self.rows)}"
        if self.claim is not None and self.verdict == UNIDENTIFIABLE:
            none = f"the text holds no {QUERIES} of {self.claim.name}"
            return f"open:  {undecided_in_words(row) if self.is_asked else none}"
        if not row["tagged"]:
            is_open = row["verdict"] == UNIDENTIFIABLE
            return f"open:  {open_in_words(row)}" if is_open else f"fails: {_failed(row)}"
        is_confirmed = pd.notna(row["confirmed"]) and bool(row["confirmed"])
        return (
            f"sure:  lift {row['lift']:.2f} [{row['ci_low']:.2f}, {row['ci_high']:.2f}], "
            f"q {row['q_value']:.1g}" + "; each half of the text gives this tag" * is_confirmed
        )


def _accuracy(row: Row) -> str:
    """How often the head is right, beside the best simple rule where one is to be beaten."""
    queries = f"{row['n']:,} {QUERIES}"
    if isnan(row["hit_rate"]):
        return f"not counted of a place to rest; {queries}"
    line = f"at {row['hit_rate']:.0%} of {queries}"
    if not row["baseline"] or isnan(row["baseline_rate"]):
        return f"{line}, by its strongest attention; chance {row['chance']:.2f}"
    line += f"; “{rule_in_words(row['baseline'])}” at {row['baseline_rate']:.0%}"
    if isnan(row["contested_hit_rate"]) or not row["contested_n"]:
        return line
    return (
        f"{line}, and where that is wrong ({row['contested_n']:.0f}) the head at "
        f"{row['contested_hit_rate']:.0%}"
    )


def _refusal(claim: Claim, rows: pd.DataFrame) -> str:
    claimed = rows[claim.is_of(rows)]
    row = claimed.loc[evidence_order(claimed)].to_dict("records")[0]
    numbers = f"{row['id']} {row['mass']:.2f}, control {row['control']:.2f}"
    return f"{numbers}; fails {_failed(row)}"


def _failed(row: Row) -> str:
    """The conditions of a tag that fail; of a single one its numbers."""
    failed = failing(row)
    if len(failed) == 1:
        return failed[0].account(row, fails=True)
    names = ", ".join(condition.name for condition in failed[:MOST_FAILED])
    return names + f" and {len(failed) - MOST_FAILED} more" * (len(failed) > MOST_FAILED)
