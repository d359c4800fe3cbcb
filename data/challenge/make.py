"""Choose the sentences of the challenge set from GUM and UD English EWT.

    python data/challenge/make.py en_ewt-ud-train.conllu | xz > data/challenge/sentences.conllu.xz

A sentence is worth the hard queries that it adds to relations that have fewer than `GOAL`, per
token. Hard queries are counted in whole documents by the fixed baselines, for causal and for
bidirectional attention. The documents with most hard queries of the rarest relations come first,
because a short run reads the beginning only.
"""

from __future__ import annotations

import heapq
import lzma
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import data_folder
from headscope.models.load import open_model
from headscope.relations import relations_of
from headscope.relations.hard_queries import is_hard
from headscope.relations.reference_baselines import reference_baselines
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TEXT
from headscope.stimuli.stimulus import cut_document

GOALS = {CAUSAL.name: 150, BIDIRECTIONAL.name: 20}
"""Hard queries of each relation by kind of attention, with those of the text of a run."""
GOAL_OF_RARE = 100
"""The goal of relations with few hard queries in all text: the last ones cost most tokens."""
IN_TEXT = 0.065
"""Share of all hard queries that the text of a run of the default length has."""
AT_LEAST = 5
"""Hard queries of a relation that the set has of each relation."""
FEWEST = 100
"""Hard queries in all text below which a relation is left out: English cannot decide it."""
LEVELS = (0.1, 0.25, 0.5, 1.0)
"""Shares of the goals that documents reach one after the other."""
TYPES = ("syntactic", "coreference")
_NEWDOC = re.compile(r"# newdoc id = (\S+)")


@dataclass
class Sentence:
    """A sentence of a document, with its hard queries by kind of attention and relation."""

    document: str
    number: int
    tokens: int = 0
    hard: Counter[str] = field(default_factory=Counter)


def counted_sentences(corpora: list[Path]) -> list[Sentence]:
    """Sentences with a hard query."""
    tokenizer = open_model("mini").tokenizer
    found: dict[tuple[str, int], Sentence] = {}
    for number, document in enumerate(read_documents(corpus_files(corpora))):
        windows = list(cut_document(document, tokenizer, TEXT.name, 256, number=number))
        for kind in (CAUSAL, BIDIRECTIONAL):
            fixed = reference_baselines(kind)
            relations = [r for r in relations_of(TYPES, kind) if r.id in fixed]
            relations = [r for r in relations if r.thresholds.taggable]
            for causal_window in windows:
                window = replace(causal_window, attention_kind=kind)
                sentence_of = window.sentence_of_token.tolist()
                sentences = {n: (document.name, n) for n in sentence_of}
                for place in sentences.values():
                    found.setdefault(place, Sentence(*place))
                if kind == CAUSAL:
                    for n in sentence_of[1:]:
                        found[sentences[n]].tokens += 1
                pairs = WindowPairs(window)
                for relation in relations:
                    targets = pairs.targets(relation)
                    if not len(targets):
                        continue
                    pick = fixed[relation.id].choice.picks(relation, pairs)
                    hard = {*targets.owner[is_hard(targets, pick)].tolist()}
                    for query in hard:
                        sentence = found[sentences[sentence_of[query]]]
                        sentence.hard[f"{kind.name} {relation.id}"] += 1
    return [sentence for sentence in found.values() if sentence.hard]


def goals(sentences: list[Sentence]) -> dict[str, int]:
    """The number of hard queries that each relation shall have."""
    total = Counter[str]()
    for sentence in sentences:
        total.update(sentence.hard)
    goals_of: dict[str, int] = {}
    for name, count in total.items():
        if count < FEWEST:
            continue
        goal = min(GOALS[name.split()[0]], max(GOAL_OF_RARE, count / 2))
        goals_of[name] = max(AT_LEAST, round(goal - IN_TEXT * count))
    return goals_of


def chosen_sentences(sentences: list[Sentence], missing: dict[str, int]) -> list[Sentence]:
    """Sentences by value for each token, until every relation has the hard queries of its goal."""
    total = Counter[str]()
    for sentence in sentences:
        total.update(sentence.hard)

    def value(sentence: Sentence) -> float:
        gain = 0.0
        for name, count in sentence.hard.items():
            gain += min(count, missing.get(name, 0)) / total[name] ** 0.5
        return gain / (sentence.tokens + 1)

    # values only fall: the best of the old values that is still its own value is the best
    heap = [(-value(sentence), number) for number, sentence in enumerate(sentences)]
    heapq.heapify(heap)
    chosen: list[Sentence] = []
    while heap and any(count > 0 for count in missing.values()):
        _, number = heapq.heappop(heap)
        current = value(sentences[number])
        if heap and current < -heap[0][0]:
            heapq.heappush(heap, (-current, number))
            continue
        chosen.append(sentences[number])
        for name, count in sentences[number].hard.items():
            missing[name] = max(0, missing.get(name, 0) - count)
    return chosen


def documents_in_order(chosen: list[Sentence], wanted: Mapping[str, int]) -> list[str]:
    """Names of the documents, those first that add most to relations with few hard queries."""
    hard: dict[str, Counter[str]] = defaultdict(Counter)
    tokens = Counter[str]()
    for sentence in chosen:
        hard[sentence.document].update(sentence.hard)
        tokens[sentence.document] += sentence.tokens
    order: list[str] = []
    have = Counter[str]()
    for level in LEVELS:
        while True:
            missing = {name: level * goal - have[name] for name, goal in wanted.items()}
            gains = {
                name: sum(min(count, max(0.0, missing.get(r, 0))) for r, count in counts.items())
                for name, counts in hard.items()
            }
            best = max(gains, key=lambda name: gains[name] / tokens[name], default=None)
            if best is None or gains[best] <= 0:
                break
            order.append(best)
            have.update(hard.pop(best))
    return [*order, *hard]


def raw_documents(corpora: list[Path]) -> Iterator[tuple[str, list[str]]]:
    """Documents by name, each as the lines of its sentences."""
    for path in corpus_files(corpora):
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            text = file.read()
        # enhanced dependencies are not read
        text = re.sub(r"^((?:[^\t\n#]*\t){8})[^\t\n]+\t", r"\1_\t", text, flags=re.MULTILINE)
        # discourse relations lead out of the sentences
        text = re.sub(r"(?<=\t)Discourse=[^|\n]*\|?", "", text).replace("\t\n", "\t_\n")
        name = ""
        sentences: list[str] = []
        for sentence in text.strip().split("\n\n"):
            begins = _NEWDOC.search(sentence)
            if begins:
                if name:
                    yield name, sentences
                name, sentences = begins[1], []
            sentences.append(sentence)
        yield name, sentences


def main() -> None:
    """Print the chosen sentences, document by document."""
    corpora = [data_folder() / "gum", *map(Path, sys.argv[1:])]
    sentences = counted_sentences(corpora)
    wanted = goals(sentences)
    chosen = chosen_sentences(sentences, dict(wanted))
    numbers_of: dict[str, list[int]] = defaultdict(list)
    for sentence in chosen:
        numbers_of[sentence.document].append(sentence.number)
    tokens = sum(sentence.tokens for sentence in chosen)
    print(f"{len(chosen)} sentences, {tokens} tokens", file=sys.stderr)
    raw = dict(raw_documents(corpora))
    for name in documents_in_order(chosen, wanted):
        print(f"# newdoc id = {name}")
        for number in sorted(numbers_of[name]):
            lines = raw[name][number].splitlines()
            print(*(line for line in lines if not line.startswith("# newdoc")), sep="\n")
            print()


if __name__ == "__main__":
    main()
