"""Choose the fixed baseline of each relation on annotated English text.

    python data/baselines/make.py FOLDER_OR_FILE... > data/baselines/english.csv

The table that ships was chosen on GUM (amir-zeldes/gum at 72ce5ac, `dep/*.conllu`, all genres) and
on the train and dev parts of UD English EWT. A baseline is chosen for each class of query words
with at least `FEWEST` queries, and one for all other classes. An offset in tokens is not chosen: it
depends on the tokenizer; the same distance in words stands beside it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.window import Window
from headscope.measure.baseline_hits import BaselineHits
from headscope.models.load import open_model
from headscope.relations import relations_of
from headscope.relations.baselines import ALL_BASELINES, OFFSET_BASELINES, OFFSETS_AHEAD
from headscope.relations.hard_queries import target_classes
from headscope.relations.reference_baselines import ALL_CLASSES, COLUMNS
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.relations.word_rows import UPOS
from headscope.stimuli.natural_text import TEXT
from headscope.stimuli.stimulus import cut_document

TYPES = ("lexical", "induction", "syntactic", "coreference", "discourse", "tense")
"""Types of annotated text."""
OF_PIECES = ("lexical/first-piece",)
"""Relations between pieces of words, which depend on the tokenizer."""
FEWEST = 50
"""Queries of a relation for a row, and of a class of words for a baseline of its own."""
LENGTH = 256


def relations_of_table(kind: AttentionKind) -> list[Relation]:
    """Relations of the table."""
    relations = relations_of(TYPES, kind)
    return [r for r in relations if r.baseline is not None and r.id not in OF_PIECES]


def text_windows(corpora: Sequence[str], kind: AttentionKind) -> list[Window]:
    """Windows of annotated text, in the tokens of `mini`."""
    tokenizer = open_model("mini").tokenizer
    windows: list[Window] = []
    for number, document in enumerate(read_documents(corpus_files(corpora))):
        for window in cut_document(document, tokenizer, TEXT.name, LENGTH, number=number):
            windows.append(replace(window, attention_kind=kind))
    return windows


def counted_hits(
    windows: Sequence[Window], relations: Sequence[Relation]
) -> dict[str, BaselineHits]:
    """Hits of all baselines, unions of the target's classes among them."""
    targets = {relation.id: BaselineHits(relation) for relation in relations}
    for window in windows:
        window_pairs = WindowPairs(window)
        for relation in relations:
            found = window_pairs.targets(relation)
            targets[relation.id].targets += target_classes(window_pairs.window, found)
    hits = {
        relation.id: BaselineHits(relation, targets[relation.id].classes_of_targets())
        for relation in relations
    }
    for window in windows:
        window_pairs = WindowPairs(window)
        for relation in relations:
            hits[relation.id].add(window_pairs, window_pairs.targets(relation))
    return hits


def rows_of(hits: BaselineHits, kind: AttentionKind) -> Iterator[dict[str, Any]]:
    """Rows of one relation: of all classes of query words, then of each frequent one."""
    offsets = (*OFFSET_BASELINES, *OFFSETS_AHEAD)
    choice = hits.choose(without=offsets, fewest=FEWEST)
    overall, _ = hits.best(offsets)
    of_relation = {"attention": kind.name, "relation": hits.relation.id}
    yield of_relation | {
        "query_class": ALL_CLASSES,
        "baseline": overall,
        "queries": hits.count,
        "rate": f"{hits.rate(choice):.4f}",
        "target_classes": " ".join(choice.target_classes),
    }
    for number, upos in enumerate(UPOS):
        queries = int(hits.queries[number])
        if queries < FEWEST or not hits.by_class:
            continue
        baseline = int(choice.baseline[number])
        yield of_relation | {
            "query_class": upos,
            "baseline": ALL_BASELINES[baseline],
            "queries": queries,
            "rate": f"{hits.right[number, baseline] / queries:.4f}",
            "target_classes": "",
        }


def table(corpora: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of all relations with `FEWEST` queries, for both kinds of attention."""
    for kind in (CAUSAL, BIDIRECTIONAL):
        hits = counted_hits(text_windows(corpora, kind), relations_of_table(kind))
        for of_relation in hits.values():
            if of_relation.count >= FEWEST:
                yield from rows_of(of_relation, kind)


def main() -> None:
    """Print the table."""
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table(sys.argv[1:]))


if __name__ == "__main__":
    main()
