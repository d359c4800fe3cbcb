"""Baselines that are fixed for a language: chosen once on all annotated text of it.

The baseline that is right most often differs from text to text, and with it the hard queries. A
fixed one asks the same question on every text. `data/baselines/make.py` chose them, and
`data/baselines/rates.py` measured there what all baselines reach at easy and at hard queries.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.attention_kind import AttentionKind
from headscope.corpus.shipped import data_folder
from headscope.relations.baselines import CLASS_COUNT, NUMBER_OF
from headscope.relations.hard_queries import ChosenBaseline
from headscope.relations.word_rows import UPOS

ALL_CLASSES = "all"
"""Stands for the classes of query words without a row of their own."""
COLUMNS = (
    "attention",
    "relation",
    "query_class",
    "baseline",
    "queries",
    "rate",
    "target_classes",
)
"""Columns of the table: a row per kind of attention, relation and class of query words. The row of
`ALL_CLASSES` has the queries and the rate of the whole relation and the classes of its targets."""
RATE_COLUMNS = ("attention", "relation", "hard_queries", "easy_rate", "hard_rate")
"""Columns of the rates: a row per kind of attention, relation and corner of its frontier."""

UNDECIDABLE = 0.985
"""Rate of the fixed baseline from which on text has too few hard queries to decide a relation."""


@dataclass(frozen=True, eq=False)
class ReferenceBaseline:
    """The fixed baseline of a relation."""

    choice: ChosenBaseline
    name: str
    """The baseline that is taken at most queries of the reference."""
    queries: int
    """Queries of the reference."""
    rate: float
    """Share of these queries that it gets right."""
    frontier: Float[ndarray, "corner 2"] | None = None
    """Rates at easy and at hard queries of the reference that no baseline exceeds; None if they
    were not measured."""

    @property
    def is_decidable(self) -> bool:
        """False if text of the language cannot distinguish a head from the baseline."""
        return self.rate < UNDECIDABLE


@cache
def reference_baselines(attention_kind: AttentionKind) -> Mapping[str, ReferenceBaseline]:
    """Fixed baselines of English by relation, for models with a kind of attention."""
    choices = _rows_by_relation("english.csv", attention_kind)
    rates = _rows_by_relation("english_rates.csv", attention_kind)
    return {name: _reference_baseline(rows, rates[name]) for name, rows in choices.items()}


def _rows_by_relation(
    file_name: str, attention_kind: AttentionKind
) -> defaultdict[str, list[dict[str, str]]]:
    file = data_folder() / "baselines" / file_name
    rows_of = defaultdict[str, list[dict[str, str]]](list)
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row["attention"] == attention_kind.name:
                rows_of[row["relation"]].append(row)
    return rows_of


def _reference_baseline(
    rows: Sequence[dict[str, str]], rates: Sequence[dict[str, str]]
) -> ReferenceBaseline:
    by_class = {row["query_class"]: row for row in rows}
    overall = by_class.pop(ALL_CLASSES)
    # classes of query words without a row of their own take the overall baseline
    baseline = np.full(CLASS_COUNT, NUMBER_OF[overall["baseline"]])
    for name, row in by_class.items():
        baseline[UPOS.index(name)] = NUMBER_OF[row["baseline"]]
    classes = tuple(overall["target_classes"].split())
    is_candidate = np.zeros(CLASS_COUNT, bool)
    is_candidate[[UPOS.index(name) for name in classes]] = True
    # the name that is shown is of the baseline at most queries
    uses = Counter[str]({overall["baseline"]: 0})
    for row in by_class.values():
        uses[row["baseline"]] += _queries(row)
    ((most_used, _),) = uses.most_common(1)
    corners = [(float(row["easy_rate"]), float(row["hard_rate"])) for row in rates]
    return ReferenceBaseline(
        choice=ChosenBaseline(baseline, is_candidate, classes),
        name=most_used,
        queries=_queries(overall),
        rate=float(overall["rate"]),
        frontier=np.array(corners) if corners else None,
    )


def _queries(row: Mapping[str, str]) -> int:
    return int(row["queries"])
