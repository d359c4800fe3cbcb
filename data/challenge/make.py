"""Choose the sentences of the challenge set from GUM.

    python data/challenge/make.py | xz > data/challenge/gum.conllu.xz

A sentence is worth the hard queries that it adds to relations that have fewer than `GOAL`, per
token. Hard queries are counted in whole documents, for causal and for bidirectional attention.
"""

from __future__ import annotations

import lzma
import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import data_folder
from headscope.measure.baseline_hits import BaselineHits
from headscope.models.load import open_model
from headscope.relations import relations_of
from headscope.relations.hard_queries import is_hard
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TEXT
from headscope.stimuli.stimulus import cut_document

GOAL, FEWEST = 30, 40
TYPES = ("syntactic", "coreference")

Sentence = tuple[str, int]
"""File and number of a sentence."""


def hard_queries() -> tuple[dict[Sentence, Counter[str]], dict[Sentence, int]]:
    """Hard queries by relation, and tokens, of each sentence."""
    tokenizer = open_model("mini").tokenizer
    found: dict[Sentence, Counter[str]] = defaultdict(Counter)
    tokens: Counter[Sentence] = Counter()
    for kind in (CAUSAL, BIDIRECTIONAL):
        relations = [r for r in relations_of(TYPES, kind) if r.thresholds.taggable]
        hits = {relation.id: BaselineHits(relation) for relation in relations}
        documents = list(read_documents(corpus_files([data_folder() / "gum"])))
        windows = [
            replace(window, attention_kind=kind)
            for number, document in enumerate(documents)
            for window in cut_document(document, tokenizer, TEXT.name, 256, number=number)
        ]
        for window in windows:
            found_pairs = WindowPairs(window)
            for relation in relations:
                hits[relation.id].add(found_pairs, found_pairs.targets(relation))
        chosen = {name: counts.choose() for name, counts in hits.items() if counts.count}
        for window in windows:
            sentence = window.sentence_of_token
            name = documents[window.document].name
            if kind == CAUSAL:
                tokens.update((name, number) for number in sentence[1:].tolist())
            found_pairs = WindowPairs(window)
            for relation in relations:
                if relation.id in chosen:
                    targets = found_pairs.targets(relation)
                    pick = chosen[relation.id].picks(relation, found_pairs)
                    for query in {*targets.owner[is_hard(targets, pick)].tolist()}:
                        found[name, int(sentence[query])][f"{kind.name} {relation.id}"] += 1
    return found, tokens


def chosen_sentences() -> list[Sentence]:
    """Sentences by value for each token, until every relation has `GOAL` hard queries."""
    found, tokens = hard_queries()
    total = Counter[str]()
    for queries in found.values():
        total.update(queries)
    missing = {name: GOAL for name, count in total.items() if count >= FEWEST}
    chosen: list[Sentence] = []

    def value(sentence: Sentence) -> float:
        gain = sum(
            min(count, missing.get(name, 0)) / total[name] ** 0.5
            for name, count in found[sentence].items()
        )
        return gain / (tokens[sentence] + 1)

    while any(count > 0 for count in missing.values()):
        best = max(found, key=value)
        chosen.append(best)
        for name, count in found.pop(best).items():
            missing[name] = max(0, missing.get(name, 0) - count)
    print(f"{len(chosen)} sentences, {sum(tokens[s] for s in chosen)} tokens", file=sys.stderr)
    return chosen


def main() -> None:
    """Print the chosen sentences, document by document, in the order of GUM."""
    chosen = set(chosen_sentences())
    for path in corpus_files([data_folder() / "gum"]):
        name = path.name.split(".")[0]
        with lzma.open(path, "rt", encoding="utf-8") as file:
            # discourse relations lead out of the sentences
            text = re.sub(r"(?<=\t)Discourse=[^|\n]*\|?", "", file.read())
            head, *sentences = text.replace("\t\n", "\t_\n").strip().split("\n\n")
        if numbers := [number for document, number in chosen if document == name]:
            print(f"# newdoc id = {name}")
            for number in sorted(numbers):
                lines = [head, *sentences][number].splitlines()
                print(*(line for line in lines if not line.startswith("# newdoc")), sep="\n")
                print()


if __name__ == "__main__":
    main()
