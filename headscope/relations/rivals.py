"""Rivals: for one query the other keys that a simpler habit would pick."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable
from headscope.relations.pairs import Pairs, no_pairs, span_pairs, without
from headscope.relations.relation import draws_nothing


@draws_nothing
def words_of_its_class(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, other words of the target's class: for each target the next nearer and farther.

    A head that likes verbs gains nothing, wherever they stand; one that likes near verbs gains
    where no verb lies nearer than the target, which contested queries tell. Where the window has
    no other word of the class, the words beside the target serve.
    """
    words = window.words
    query, key = word_pairs(words, targets)
    rows, rivals = [query[:0]], [key[:0]]
    taken = np.sort(query * len(words) + key)
    alone = np.ones(len(query), bool)
    for pair in _steps(words):
        if not alone.any():
            break
        left = alone.copy()
        for step in pair:
            found = _skip(query, step[key], step, taken)
            seen = (words.last[found] < words.last[query]) | window.both_ways
            kept = left & (found >= 0) & seen
            rows.append(query[kept])
            rivals.append(found[kept])
            alone &= ~kept
    drawn = np.concatenate(rows), np.concatenate(rivals)
    return spans(words, *drawn, targets, later=window.both_ways)


def word_pairs(words: WordTable, targets: Pairs) -> tuple[ndarray, ndarray]:
    """The words of the targets' owners and keys, a row for each target word."""
    key = np.searchsorted(words.first, targets.key, side="right") - 1
    last = targets.key == words.last[key]
    return np.searchsorted(words.last, targets.owner[last]), key[last]


def spans(
    words: WordTable,
    query: Int[ndarray, " pair"],
    key: Int[ndarray, " pair"],
    targets: Pairs,
    *,
    later: bool = False,
) -> Pairs:
    """Words as cells, without those that are targets: two words can share a token."""
    if not len(query):
        return no_pairs()
    places = words.last[query], words.first[key], words.last[key]
    return without(span_pairs(*places, later=later), targets)


@lru_cache(maxsize=8)
def _steps(words: WordTable) -> tuple[tuple[ndarray, ndarray], tuple[ndarray, ndarray]]:
    """The next and the previous word of each word's class, then of any."""
    _, code = np.unique(words.upos, return_inverse=True)
    return _neighbours(code), _neighbours(np.zeros_like(code))


def _neighbours(code: Int[ndarray, " word"]) -> tuple[ndarray, ndarray]:
    """The next and the previous word of the same class for each word, −1 at the ends."""
    order = np.argsort(code, kind="stable")
    alike = code[order][1:] == code[order][:-1]
    after, before = np.full((2, len(code)), -1)
    after[order[:-1][alike]] = order[1:][alike]
    before[order[1:][alike]] = order[:-1][alike]
    return after, before


def _skip(
    query: Int[ndarray, " pair"],
    found: Int[ndarray, " pair"],
    step: Int[ndarray, " word"],
    taken: Int[ndarray, " pair"],
) -> Int[ndarray, " pair"]:
    """Go on past the query itself and words that are targets of the same query."""
    found = found.copy()
    left = np.arange(len(found))
    while len(left):
        own, other = query[left], found[left]
        cell = own * len(step) + other
        place = np.minimum(np.searchsorted(taken, cell), len(taken) - 1)
        left = left[(other >= 0) & ((other == own) | (taken[place] == cell))]
        found[left] = step[found[left]]
    return found
