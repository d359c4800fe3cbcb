"""Simple rules across: "the same place", "the diagonal", "the last word", "the same form".

A head that follows one of them finds many translations in languages of one word order without
knowing any word. What it gets right on a text is known from the text and its alignment alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable

STEPS = range(-3, 4)
PREFIX = 4
"""Letters that two words begin with alike, so that one may be taken for the other."""
_STEPPED = ("diagonal", "same-place", "from-the-end", "mirrored")
_PLACES = ("first", "second", "last", "last-but-one", "shortest", "longest", "middle")
_LIKE = ("same-form", "same-beginning")
_OF_CLASS = ("near-diagonal", "near-same-place", "first", "second", "last", "in-the-same-order")
ACROSS = (
    *(f"{name}{step:+d}" if step else name for name, step in product(_STEPPED, STEPS)),
    *(f"{name}-source-word" for name in _PLACES),
    *_LIKE,
    *(f"{name}-of-its-class" for name in _OF_CLASS),
    *(f"{name}-of-the-next-class" for name in _OF_CLASS),
)
"""Every simple rule by name. With steps: of words, to the right of where the rule points."""
DIAGONALS = len(STEPS) * 2
"""The first of them are fixed distances from the diagonal, or from the same place."""


def across_picks(window: Window) -> Int[ndarray, "rule position"]:
    """The last token of the source word that each rule names at each position of the target.

    A rule speaks of the word that the position lies in, or of the one before it where none does.
    Where it names no word it is −1, as everywhere in the source.
    """
    words, size = window.words, len(window)
    picks = np.full((len(ACROSS), size), -1)
    source, target = _rows(window)
    if not len(source) or not len(target):
        return picks
    # where the decoder begins no word has come: −1
    target_word = np.searchsorted(words.first[target], np.arange(window.source, size), "right") - 1
    by_word = np.stack(list(_picked(words, source, target)))
    here = by_word[:, np.maximum(target_word, 0)]
    here[:, target_word < 0] = -1
    before = np.arange(len(_STEPPED) * len(STEPS)).reshape(len(_STEPPED), -1)
    started = np.flatnonzero(target_word < 0)
    # before the first word a rule with a step points as from the place before it
    for rows in before[:2]:
        here[rows[1:, None], started] = by_word[rows[:-1], 0][:, None]
    picks[:, window.source :] = np.where(here >= 0, words.last[source[here]], -1)
    return picks


def _rows(window: Window) -> tuple[Int[ndarray, " source"], Int[ndarray, " target"]]:
    """The words of the source and those of the target."""
    inside = window.words.first < window.source
    return np.flatnonzero(inside), np.flatnonzero(~inside)


def _picked(
    words: WordTable, source: Int[ndarray, " source"], target: Int[ndarray, " target"]
) -> Iterator[Int[ndarray, " target"]]:
    """For each rule the number of the source word that it names at each word of the target."""
    count, every = len(source), np.arange(len(target))
    diagonal = (2 * every + 1) * count // (2 * len(target))
    from_the_end = count - len(target) + every
    for start in (diagonal, every, from_the_end, count - 1 - every):
        for step in STEPS:
            yield _there(start + step, count)
    lengths = words.last[source] - words.first[source] + np.char.str_len(words.lemma[source])
    for word in (0, 1, count - 1, count - 2, lengths.argmin(), lengths.argmax(), count // 2):
        yield _there(np.full(len(target), word), count)
    forms = words.lemma
    yield _nearest(forms[source] == forms[target][:, None], diagonal)
    begins = forms.astype(f"U{PREFIX}")
    yield _nearest(begins[source] == begins[target][:, None], diagonal)
    for ahead in (0, 1):
        rows = np.minimum(every + ahead, len(target) - 1)
        yield from _of_class(words, source, target[rows], (diagonal[rows], rows))


def _of_class(
    words: WordTable,
    source: Int[ndarray, " source"],
    target: Int[ndarray, " target"],
    places: tuple[ndarray, ndarray],
) -> Iterator[Int[ndarray, " target"]]:
    """Source words of a target word's part of speech; none where a text has none."""
    same_class = words.upos[source] == words.upos[target][:, None]
    same_class &= (words.upos[target] != "")[:, None]
    for rank in places:
        yield _nearest(same_class, rank)
    count = same_class.sum(1)
    order = np.argsort(~same_class, axis=1, kind="stable")  # those of the class come first
    classes = words.upos[target]
    before = np.tril(classes == classes[:, None], -1).sum(1)
    for number in (np.zeros_like(count), np.ones_like(count), count - 1, before):
        inside = (number >= 0) & (number < count)
        rank_index = np.minimum(np.maximum(number, 0), same_class.shape[1] - 1)
        yield np.where(inside, order[np.arange(len(target)), rank_index], -1)


def _there(word: Int[ndarray, " target"], count: int) -> Int[ndarray, " target"]:
    return np.where((word >= 0) & (word < count), word, -1)


def _nearest(same_class: ndarray, word: Int[ndarray, " target"]) -> Int[ndarray, " target"]:
    """The nearest of those that are alike to a place, the first of two that are as near."""
    distance = np.abs(np.arange(same_class.shape[1]) - word[:, None]).astype(float)
    distance[~same_class] = np.inf
    return np.where(same_class.any(1), distance.argmin(1), -1)
