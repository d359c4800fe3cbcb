"""Measure the rates of all baselines at easy and at hard queries of annotated English text.

    python -m data.baselines.rates FOLDER_OR_FILE... > data/baselines/english_rates.csv

The text is that of `make.py`, and the fixed baselines are those that it chose. The table has the
types of the challenge set only: other relations have many hard queries in any text.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from data.baselines.make import text_windows
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind
from headscope.measure.baseline_hits import BaselineHits, ComparedRates
from headscope.relations import relations_of
from headscope.relations.reference_baselines import RATE_COLUMNS, reference_baselines
from headscope.relations.window_pairs import WindowPairs

TYPES = ("syntactic", "coreference")


def rows(corpora: Sequence[str], kind: AttentionKind) -> Iterator[dict[str, Any]]:
    """A row per relation and corner of its frontier."""
    fixed = reference_baselines(kind)
    relations = [r for r in relations_of(TYPES, kind) if r.id in fixed and r.baseline is not None]
    hits: dict[str, BaselineHits] = {}
    compared: dict[str, ComparedRates] = {}
    for relation in relations:
        choice = fixed[relation.id].choice
        hits[relation.id] = BaselineHits(relation, choice.target_classes)
        compared[relation.id] = ComparedRates(relation, choice)
    for window in text_windows(corpora, kind):
        window_pairs = WindowPairs(window)
        for relation in relations:
            hits[relation.id].add(window_pairs, window_pairs.targets(relation))
            compared[relation.id].add(window_pairs)
    for name, rates in compared.items():
        for easy_rate, hard_rate in rates.frontier(hits[name]).tolist():
            yield {
                "attention": kind.name,
                "relation": name,
                "hard_queries": rates.hard_count,
                "easy_rate": f"{easy_rate:.4f}",
                "hard_rate": f"{hard_rate:.4f}",
            }


def main() -> None:
    """Print the table."""
    writer = csv.DictWriter(sys.stdout, RATE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for kind in (CAUSAL, BIDIRECTIONAL):
        writer.writerows(rows(sys.argv[1:], kind))


if __name__ == "__main__":
    main()
