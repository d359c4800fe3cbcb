"""Pairs of related words from a list that ships, and sentences with a pair among other words."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from headscope.corpus.document import Document, Word
from headscope.corpus.shipped import data_folder
from headscope.stimuli.stimulus import Stimulus

RELATIONS = ("synonym", "antonym", "hypernym", "category", "part-whole")


class WordPair(NamedTuple):
    """A row of `word_pairs.csv`: two lemmas of one part of speech."""

    first: str
    second: str
    relation: str
    upos: str


@dataclass(frozen=True)
class Lexicon:
    """All pairs, and for each relation which lemmas each lemma is related to, either way."""

    pairs: tuple[WordPair, ...]
    related: dict[str, dict[str, set[str]]]

    def any_relation(self, lemma: str) -> set[str]:
        """Lemmas that are related to this one in any way, itself among them."""
        return {lemma}.union(*(table.get(lemma, set()) for table in self.related.values()))


@cache
def shipped_pairs() -> Lexicon:
    """The pairs that ship with headscope.

    >>> sorted(shipped_pairs().related["antonym"]["hot"])
    ['cold']
    """
    path = data_folder() / "word_pairs.csv"
    with path.open(encoding="utf-8", newline="") as file:
        pairs = tuple(WordPair(**row) for row in csv.DictReader(file))
    related: dict[str, dict[str, set[str]]] = {name: {} for name in RELATIONS}
    for pair in pairs:
        table = related[pair.relation]
        first = pair.first.lower()
        second = pair.second.lower()
        table.setdefault(first, set()).add(second)
        table.setdefault(second, set()).add(first)
    return Lexicon(pairs, related)


PER_RELATION = 2
"""Sentences of each relation in one document."""

# {0} to {2} hold a related word and two unrelated ones in any order, {3} is the query
TEMPLATES = {
    "NOUN": (
        "They spoke of the {0}, of the {1}, of the {2} and of the {3}.",
        "First came the {0}, then the {1} and the {2}, and last of all the {3}.",
        "On one page was the word {0}, on another {1}, on a third {2}, and here is {3}.",
    ),
    "VERB": (
        "Some want to {0}, others to {1} or to {2}, and a few to {3}.",
        "First they had to {0}, then to {1}, later to {2} and in the end to {3}.",
        "She told us to {0}, to {1}, to {2} and to {3}.",
    ),
    "ADJ": (
        "One seemed {0}, one {1}, another {2}, and the last {3}.",
        "It may be {0}, it may be {1} or {2}, and it may be {3}.",
        "Write down whether it was {0}, {1}, {2} or {3}.",
    ),
}


def pair_documents(lexicon: Lexicon, *, count: int, seed: int) -> list[Document]:
    """Documents of ten sentences, two for each relation, each with a pair among unrelated words.

    The related word stands in any of three places before the query. No pair is used twice while
    there are unused ones.
    """
    rng = np.random.default_rng(seed)
    # pairs of a relation in random order, each used once before one comes again
    decks = {
        name: _shuffled([p for p in lexicon.pairs if p.relation == name], rng, count * PER_RELATION)
        for name in RELATIONS
    }
    # unrelated words are first words of other pairs
    firsts = {
        upos: sorted({p.first for p in lexicon.pairs if p.upos == upos}) for upos in TEMPLATES
    }
    documents = []
    for i in range(count):
        sentences = [
            _sentence(decks[name][i * PER_RELATION + k], lexicon, firsts, rng)
            for k in range(PER_RELATION)
            for name in RELATIONS
        ]
        documents.append(_document(f"pairs_{i:02d}", sentences))
    return documents


_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class _Sentence:
    """A sentence to fill: its template, the words of its slots, and their part of speech."""

    template: str
    fillers: Sequence[str]
    upos: str


def _sentence(
    pair: WordPair, lexicon: Lexicon, firsts: dict[str, list[str]], rng: np.random.Generator
) -> _Sentence:
    first, second = pair.first, pair.second
    if rng.random() >= 0.5:
        first, second = second, first
    related_to_first = lexicon.any_relation(first.lower())
    related_to_second = lexicon.any_relation(second.lower())
    related = related_to_first | related_to_second
    unrelated = [word for word in firsts[pair.upos] if word.lower() not in related]
    others = rng.choice(unrelated, 2, replace=False).tolist()
    candidates = [first, *others]
    fillers = [candidates[index] for index in rng.permutation(3)]
    fillers.append(second)
    templates = TEMPLATES[pair.upos]
    template = templates[int(rng.integers(len(templates)))]
    return _Sentence(template, fillers, pair.upos)


def _document(name: str, sentences: Sequence[_Sentence]) -> Document:
    text = ""
    words: list[Word] = []
    for number, sentence in enumerate(sentences):
        # parts alternate: plain text, slot number, plain text, …
        for index, part in enumerate(re.split(r"[{}]", sentence.template)):
            is_slot = index % 2 == 1
            filled = sentence.fillers[int(part)] if is_slot else part
            upos = sentence.upos if is_slot else "X"
            if is_slot and filled[0].isupper():  # "of France", not "of the France"
                text = text.removesuffix("the ")
                words = [word for word in words if word.end <= len(text)]
            for match in _WORD.finditer(filled):
                start, end = len(text) + match.start(), len(text) + match.end()
                words.append(Word(match.group(), start, end, number, match.group(), upos))
            text += filled
        text += " "
    return Document(name, text.rstrip(), tuple(words), source="word pairs")


def _shuffled(pairs: list[WordPair], rng: np.random.Generator, count: int) -> list[WordPair]:
    rounds = -(-count // len(pairs))
    return [pairs[i] for _ in range(rounds) for i in rng.permutation(len(pairs))][:count]


PAIRS = Stimulus(
    name="pairs",
    title="word pairs",
    build=lambda config: pair_documents(shipped_pairs(), count=config.documents, seed=config.seed),
    study_documents=48,
    picture="the first {side} tokens of sentences with related words",
)
