"""Lexical heads: by word class and spelling alone, without syntax.

The nearest earlier verb, the same part of speech, the same word, earlier pieces of the same word:
the simpler names that many heads deserve which find a verb's object or a noun's determiner. Of an
encoder the next later verb is asked too, and words and pieces on either side.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from jaxtyping import Bool, Int
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
from headscope.relations.simple_rules import FALLING_BACK, nearest, of_class, same_class
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


def next_of(window: Window, name: str) -> Pairs:
    """Every word with the next later word of a class."""
    return _to_words(window, _following(of_class(window.words, name)))


def next_alike(window: Window) -> Pairs:
    """Every word with the next later word of its own class."""
    words = window.words
    found = np.full(len(words), -1)
    earlier = same_class(words)
    found[earlier[earlier >= 0]] = np.flatnonzero(earlier >= 0)
    return _to_words(window, found)


def nearest_alike(window: Window) -> Pairs:
    """Every word with the nearest earlier word of its own class."""
    return _to_words(window, same_class(window.words))


def same_word(window: Window) -> Pairs:
    """Every word with all earlier words of the same lemma and class; marks are no words.

    In an encoder with the later ones too.
    """
    words = window.words
    lemma, upos = (np.unique(each, return_inverse=True)[1] for each in (words.lemma, words.upos))
    known = lemma * len(words) + upos
    alike = (known[:, None] == known[None, :]) & of_class(words, "word")[:, None]
    query, key = np.nonzero(alike if window.both_ways else np.tril(alike, k=-1))
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
    return spans(words, query[other], key[other], targets, later=window.both_ways)


def earlier_pieces(window: Window) -> Pairs:
    """Each later piece of a word with all earlier pieces of that word, in an encoder all others."""
    length = window.words.last - window.words.first
    query, key = [], []
    for first, more in zip(window.words.first[length > 0], length[length > 0], strict=True):
        later, earlier = _below_diagonal(int(more) + 1)
        for side in (
            ((later, earlier), (earlier, later)) if window.both_ways else ((later, earlier),)
        ):
            query.append(first + side[0])
            key.append(first + side[1])
    if not query:
        return no_pairs()
    return pairs(np.concatenate(query), np.concatenate(key), later=window.both_ways)


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


def _following(mask: Bool[ndarray, " word"]) -> Int[ndarray, " word"]:
    """For each word the next later one of those in a mask, −1 where there is none."""
    mirrored = nearest(mask[::-1])[::-1]
    return np.where(mirrored >= 0, len(mask) - 1 - mirrored, -1)


def _cells(window: Window, query: Int[ndarray, " pair"], key: Int[ndarray, " pair"]) -> Pairs:
    words = window.words
    apart = words.last[key] < words.first[query] if len(query) else np.empty(0, bool)
    if window.both_ways and len(query):
        apart = apart | (words.first[key] > words.last[query])
    query, key = query[apart], key[apart]
    if not len(query):
        return no_pairs()
    places = words.last[query], words.first[key], words.last[key]
    return distinct(span_pairs(*places, later=window.both_ways))


def _row(name: str, meaning: str, find: FindPairs, control: DrawControl, *same: str) -> Relation:
    return Relation(
        "lexical",
        name,
        find,
        control,
        Rule(FLOOR, SOURCE, meaning, beat_baseline_by=BEAT_RULE_BY),
        baseline=Baseline(without=frozenset(same), by_class=False),
    )


_NEAREST = tuple(
    _row(
        f"nearest-{name}",
        f"the nearest earlier {name}",
        partial(nearest_of, name=name),
        words_of_its_class,
        f"nearest-{name}",
        f"nearest-{name}-in-sentence",
        *(form.format(name) for form in FALLING_BACK),
    )
    for name in NEAREST
)
_NEXT = tuple(
    _row(
        f"next-{name}",
        f"the next {name}",
        partial(next_of, name=name),
        words_of_its_class,
        f"later-nearest-{name}",
        f"later-nearest-{name}-in-sentence",
        *(f"later-{form.format(name)}" for form in FALLING_BACK),
    )
    for name in NEAREST
)
_SAME_CLASS = _row(
    "same-class",
    "the nearest earlier word of its own class",
    nearest_alike,
    words_of_its_class,
    "same-class",
)
_NEXT_OF_CLASS = _row(
    "next-same-class",
    "the next word of its own class",
    next_alike,
    words_of_its_class,
    "later-same-class",
)
_FIRST_PIECE = _row("first-piece", "the first piece of the word", first_piece, other_pieces)


def _within(which: str) -> tuple[Relation, Relation]:
    """What is asked of words and their pieces that are `earlier` or `other`."""
    rule = Rule(FLOOR, SOURCE, f"{which} pieces of the same word")
    told = f"{which} occurrences of the same word"
    same: tuple[str, ...] = ("same-lemma", "first-same-lemma")
    if which != "earlier":
        same += ("later-same-lemma", "later-first-same-lemma")
    return (
        _row("duplicate", told, same_word, other_words, *same),
        Relation("lexical", "in-word", earlier_pieces, across_words, rule),
    )


RELATIONS = (*_NEAREST, _SAME_CLASS, *_within("earlier"), _FIRST_PIECE)
BOTH_WAYS = (
    *_NEAREST,
    *_NEXT,
    _SAME_CLASS,
    _NEXT_OF_CLASS,
    *_within("other"),
    _FIRST_PIECE,
)

TYPE = HeadType(
    name="lexical",
    letter="L",
    colour="#999933",
    marker="h",
    relations=RELATIONS,
    both_ways=BOTH_WAYS,
    looks_at="the nearest word of a class, the same class, the same word, pieces of the same word",
    rivals="same query, other words of the class nearer and farther; where another simple rule is "
    "wrong, what that rule picks; for pieces the same distance across words",
    behaviour="text",
)
