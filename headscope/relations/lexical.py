"""Lexical heads: by word class and spelling alone, without syntax.

The nearest earlier verb, the same part of speech, the same word, earlier pieces of the same word:
the simpler names that many heads deserve which find a verb's object or a noun's determiner.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.controls import DRAWS, same_distance
from headscope.relations.pairs import Pairs, distinct, no_pairs, pairs, span_pairs
from headscope.relations.relation import (
    Baseline,
    DrawControl,
    FindPairs,
    Relation,
    Rule,
    draws_nothing,
)
from headscope.relations.rivals import spans, word_pairs, words_of_its_class
from headscope.relations.simple_rules import nearest, of_class, same_class
from headscope.relations.types import HeadType

FLOOR = 0.2
SOURCE = (
    "ours: a fifth of a head's attention on one earlier word, twice what syntax asks, because the "
    "question is asked of every word"
)
BEAT_RULE_BY = 0.10
NEAREST = ("NOUN", "PROPN", "VERB", "AUX", "ADJ", "ADV", "ADP", "DET", "PRON", "CCONJ", "SCONJ",
           "PART", "NUM")  # fmt: skip


def nearest_of(window: Window, name: str) -> Pairs:
    """Every word with the nearest earlier word of a class."""
    return _to_words(window, nearest(of_class(window.words, name)))


def nearest_alike(window: Window) -> Pairs:
    """Every word with the nearest earlier word of its own class."""
    return _to_words(window, same_class(window.words))


def same_word(window: Window) -> Pairs:
    """Every word with all earlier words of the same lemma and class; marks are no words."""
    words = window.words
    lemma, upos = (np.unique(each, return_inverse=True)[1] for each in (words.lemma, words.upos))
    known = lemma * len(words) + upos
    alike = np.tril(known[:, None] == known[None, :], k=-1) & of_class(words, "word")[:, None]
    query, key = np.nonzero(alike)
    return _cells(window, query, key)


@draws_nothing
def other_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, words of the target's class but of another lemma, the next nearer and farther."""
    words = window.words
    drawn = words_of_its_class(window, targets, rng)
    if not len(drawn):
        return drawn
    query, key = word_pairs(words, drawn)
    other = words.lemma[query] != words.lemma[key]
    return spans(words, query[other], key[other], targets)


def earlier_pieces(window: Window) -> Pairs:
    """Each later piece of a word with all earlier pieces of that word."""
    length = window.words.last - window.words.first
    query, key = [], []
    for first, more in zip(window.words.first[length > 0], length[length > 0], strict=True):
        later, earlier = _below_diagonal(int(more) + 1)
        query.append(first + later)
        key.append(first + earlier)
    return pairs(np.concatenate(query), np.concatenate(key)) if query else no_pairs()


@cache
def _below_diagonal(size: int) -> tuple[ndarray, ndarray]:
    return np.tril_indices(size, k=-1)


def across_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """The same distance from other queries, across the boundary of a word."""
    drawn = same_distance(window, targets, rng)
    word = np.searchsorted(window.words.first, np.arange(len(window)), side="right")
    return drawn.take(word[drawn.query] != word[drawn.key])


def first_piece(window: Window) -> Pairs:
    """The third and later pieces of a word with its first."""
    words = window.words
    length = words.last - words.first
    rows = np.repeat(np.flatnonzero(length > 1), length[length > 1] - 1)
    if not len(rows):
        return no_pairs()
    start = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    step = np.arange(len(rows)) - np.repeat(start, np.diff(np.r_[start, len(rows)]))
    return pairs(words.first[rows] + 2 + step, words.first[rows])


def other_pieces(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the pieces between the word's first and the query."""
    owner = np.repeat(targets.query, DRAWS)
    first = np.repeat(targets.key, DRAWS)
    between = 1 + (rng.random(len(owner)) * (owner - first - 1)).astype(np.int64)
    return pairs(owner, first + between)


def _to_words(window: Window, found: Int[ndarray, " word"]) -> Pairs:
    query = np.flatnonzero(found >= 0)
    return _cells(window, query, found[query])


def _cells(window: Window, query: Int[ndarray, " pair"], key: Int[ndarray, " pair"]) -> Pairs:
    words = window.words
    apart = words.last[key] < words.first[query] if len(query) else np.empty(0, bool)
    query, key = query[apart], key[apart]
    if not len(query):
        return no_pairs()
    return distinct(span_pairs(words.last[query], words.first[key], words.last[key]))


def _row(name: str, meaning: str, find: FindPairs, control: DrawControl, *same: str) -> Relation:
    return Relation(
        "lexical",
        name,
        find,
        control,
        Rule(FLOOR, SOURCE, meaning, beat_baseline_by=BEAT_RULE_BY),
        baseline=Baseline(without=frozenset(same), by_class=False),
    )


RELATIONS = (
    *(
        _row(
            f"nearest-{name}",
            f"the nearest earlier {name}",
            partial(nearest_of, name=name),
            words_of_its_class,
            f"nearest-{name}",
            f"nearest-{name}-in-sentence",
        )
        for name in NEAREST
    ),
    _row("same-class", "the nearest earlier word of its own class", nearest_alike,
         words_of_its_class, "same-class"),
    _row("duplicate", "earlier occurrences of the same word", same_word, other_words, "same-lemma"),
    Relation("lexical", "in-word", earlier_pieces, across_words,
             Rule(FLOOR, SOURCE, "earlier pieces of the same word")),
    _row("first-piece", "the first piece of the word", first_piece, other_pieces),
)  # fmt: skip

TYPE = HeadType(
    name="lexical",
    letter="L",
    colour="#999933",
    marker="h",
    relations=RELATIONS,
    looks_at="the nearest word of a class, the same class, the same word, pieces of the same word",
    rivals="same query, other words of the class nearer and farther; where another simple rule is "
    "wrong, what that rule picks; for pieces the same distance across words",
    behaviour="text",
)
