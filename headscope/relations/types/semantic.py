"""Semantic heads: from a word to an earlier word of related meaning.

Pairs of related words come from a list that ships. They are found by lemma, in annotated text and
in sentences made around them, the stimulus. Voita et al. 2019 and Clark et al. 2019 report no such
heads; whether a model has them is an open question.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.document import Document, Word
from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window
from headscope.relations.controls import nearest_others, word_cells
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Label, Relation, above_surrogate, draws_nothing
from headscope.stimuli.natural_text import TEXT
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
    # words that are related in any way would be right answers of another relation
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


SENTENCES_BACK = 1
"""Related words count when they stand in one sentence or in two neighbouring ones."""

_CLASSES = {"NOUN": "NOUN", "PROPN": "NOUN", "VERB": "VERB", "ADJ": "ADJ"}


def related_words(window: Window, name: str) -> Pairs:
    """Each word with all sub-tokens of the earlier words that are related to it.

    In an encoder of the later ones too.
    """
    words = window.words
    related = shipped_pairs().related[name]
    seen: dict[tuple[str, str], list[int]] = {}
    query_rows: list[int] = []
    key_rows: list[int] = []
    for row, lemma in enumerate(words.lemma.tolist()):
        word_class = _CLASSES.get(words.upos[row])
        if word_class is None:
            continue
        for partner in sorted(related.get(lemma, ())):
            # "drinking coffee" does not relate coffee and drink
            for earlier in seen.get((partner, word_class), ()):
                sentences_back = words.sentence[row] - words.sentence[earlier]
                if sentences_back <= SENTENCES_BACK:
                    query_rows.append(row)
                    key_rows.append(earlier)
        seen.setdefault((lemma, word_class), []).append(row)
    # what is related to a word, the word is related to
    later, earlier_words = np.array(query_rows, np.int64), np.array(key_rows, np.int64)
    query = np.append(later, earlier_words)
    key = np.append(earlier_words, later)
    return word_cells(window, query, key)


@draws_nothing
def unrelated_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, unrelated words of the key's class: for each key the next nearer and farther.

    A head that prefers nouns has lift 0. A head that prefers near words has a positive lift if no
    word is nearer than the related one: a tag must also exceed the nearest word of the class.
    """
    words = window.words
    lexicon = shipped_pairs()

    def unrelated_to(query: int, key: int) -> Int[ndarray, " word"]:
        related = lexicon.any_relation(str(words.lemma[query]))
        # a causal query has not read later words yet
        before_query = words.last[[query]] - 1
        is_seen = window.attention_kind.sees(before_query, words.last)
        is_of_class = words.upos == words.upos[key]
        is_related = np.isin(words.lemma, list(related))
        return np.flatnonzero(is_seen & is_of_class & ~is_related)

    return nearest_others(window, targets, unrelated_to)


def nearest_of_class(window: Window) -> Int[ndarray, " position"]:
    """Nearest earlier word of the class of each content word, names counting as nouns.

    In an encoder the nearest on either side.
    """
    words = window.words
    pick = np.full(len(window), -1)
    names = [_CLASSES.get(upos, "") for upos in words.upos.tolist()]
    class_of_word = np.array(names, "U4")
    for name in sorted(set(_CLASSES.values())):
        last = words.last[class_of_word == name]
        query = last[1:]
        pick[query] = last[:-1]
        if window.attention_kind.sees_future and len(last) > 1:
            first = last[0]
            pick[first] = last[1]
            gap = np.diff(last)
            # of the words between the first and the last those whose next word is nearer
            is_ahead = gap[1:] < gap[:-1]
            between = last[1:-1][is_ahead]
            pick[between] = last[2:][is_ahead]
    return pick


_MEANINGS = {
    "synonym": "a word of similar meaning",
    "antonym": "a word of opposite meaning",
    "hypernym": "the kind of thing that the word is, or a thing of its kind",
    "category": "another member of the word's category",
    "part-whole": "a part of what the word names, or the whole that it is a part of",
}

RELATED = "related-word"
"""General label of a head that does not distinguish semantic relations."""

TYPE = HeadType(
    name="semantic",
    letter="M",
    order=80,
    colour="#e69f00",
    relations=tuple(
        Relation(
            "semantic",
            name,
            partial(related_words, name=name),
            unrelated_words,
            above_surrogate(
                0.1,
                "ours: a tenth of a head's attention on one earlier word, which is what syntactic "
                "and coreference heads must have",
                meaning,
            ),
            (TEXT.name, PAIRS.name),
            Baseline(nearest_of_class),
            label=Label(name, (RELATED,)),
        )
        for name, meaning in _MEANINGS.items()
    ),
    stimuli=(PAIRS,),
    looks_at="an earlier synonym, antonym, kind, co-member, part or whole",
    control_keys="unrelated words of the same class, nearer and farther; the nearest one",
    on_request=True,
    behaviour=PAIRS.name,
)
