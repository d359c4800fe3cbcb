"""Control pairs: cells that a given baseline head hits as often as the targets.

Distractors are the other keys of a query that a baseline would pick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.attention_kind import AttentionKind
from headscope.corpus.window import Window, WordTable
from headscope.relations.pairs import Pairs, distinct, pairs, span_pairs, without
from headscope.relations.relation import draws_nothing
from headscope.relations.word_rows import nearest_equal, next_equal

DRAWS = 4
"""Control cells tried per query or target: more would narrow the control's noise, which is
already far below the differences between documents."""
FindOthers = Callable[[int, int], Int[ndarray, " other"]]
"""Rows of the other words for the rows of a query word and of its target word, in order."""


def other_keys(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, other keys: any position from 1 to the query that is not a target.

    In an encoder any position of the text. A head with uniform attention has lift 0.
    The first token and an encoder's closing token are excluded: they are attention sinks.
    """
    return _same_query(targets, np.arange(1, window.stop), rng, window.attention_kind)


def keys_from(
    window: Window, pool: Int[ndarray, " position"], targets: Pairs, rng: np.random.Generator
) -> Pairs:
    """Same query, keys from a sorted pool of positions; of a causal model strictly before it."""
    return _same_query(targets, pool, rng, window.attention_kind, back=1)


def same_distance(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Other query, same distance and side: a head with a fixed offset has lift 0."""
    kind = window.attention_kind
    distance = np.repeat(targets.query - targets.key, DRAWS)
    owner = np.repeat(targets.owner, DRAWS)
    share = np.repeat(targets.share, DRAWS)
    # the first query for which this distance does not reach the first token; ahead, the last for
    # which it does not reach what closes the text
    first = np.maximum(distance, 0) + 1
    ahead = np.maximum(-distance, 0)
    end = np.where(ahead > 0, window.stop - ahead, len(window))
    draw = first + _below(end - first, rng)
    query = np.minimum(draw, end - 1)
    key = query - distance
    seen = kind.sees(query, key)
    controls = pairs(query[seen], key[seen], owner[seen], attention_kind=kind)
    return _no_targets(replace(controls, share=share[seen]), targets)


def _same_query(
    targets: Pairs,
    pool: Int[ndarray, " position"],
    rng: np.random.Generator,
    attention_kind: AttentionKind,
    back: int = 0,
) -> Pairs:
    """Same query, keys from a sorted pool; those that are seen so many places before the query."""
    owner = np.repeat(targets.queries, DRAWS)
    choices = attention_kind.count_seen(pool, owner - back)
    has_choice = choices > 0
    owner = owner[has_choice]
    key = pool[_below(choices[has_choice], rng)]
    # a token stands against a token, of a word's several too
    tokens = np.bincount(targets.owner)
    words = np.bincount(targets.owner, targets.share)
    share = words / tokens.clip(1)
    controls = pairs(owner, key, attention_kind=attention_kind)
    return _no_targets(replace(controls, share=share[owner]), targets)


def _below(bound: Int[ndarray, " draw"], rng: np.random.Generator) -> Int[ndarray, " draw"]:
    """A random integer in [0, bound) for each bound; 0 if the bound is below 1."""
    drawn_numbers = rng.random(len(bound)) * np.maximum(bound, 1)
    return np.asarray(drawn_numbers, np.int64)


def _no_targets(controls: Pairs, targets: Pairs) -> Pairs:
    """Leave out drawn cells that are targets themselves, and keys at the first token."""
    return without(controls.take(controls.key > 0), targets)


@draws_nothing
def words_of_its_class(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, other words of the target's class: for each target the next nearer and farther.

    If the window has no other word of the class, the neighbours of the target are used.
    """
    words = window.words
    query, key = word_pairs(words, targets)
    rows = [query[:0]]
    distractors = [key[:0]]
    # words that are targets of the query themselves are skipped
    target_cells = np.sort(query * len(words) + key)
    # a query whose word has no other of its class takes the next pair of steps
    alone = np.ones(len(query), bool)
    for pair in window.once(_steps):
        if not alone.any():
            break
        is_free = alone.copy()
        for step in pair:
            distractor = _skip(query, step[key], step, target_cells)
            seen = window.attention_kind.sees(words.last[query] - 1, words.last[distractor])
            is_valid = is_free & seen & (distractor >= 0)
            rows.append(query[is_valid])
            distractors.append(distractor[is_valid])
            alone &= ~is_valid
    spans = word_spans(window, np.concatenate(rows), np.concatenate(distractors))
    return without(spans, targets)  # two words can share a token


def nearest_others(window: Window, targets: Pairs, others_of: FindOthers) -> Pairs:
    """Same query, other words: for each target word the next one nearer and the next farther."""
    words = window.words
    query_rows: list[int] = []
    key_rows: list[int] = []
    query_words, target_words = word_pairs(words, targets)
    for query, target in zip(query_words.tolist(), target_words.tolist(), strict=True):
        others = others_of(query, target)
        nearer = others[others > target]
        farther = others[others < target]
        for other in (*nearer[:1], *farther[-1:]):
            query_rows.append(query)
            key_rows.append(other)
    controls = word_cells(window, np.array(query_rows, np.int64), np.array(key_rows, np.int64))
    # two words can share a token
    return without(controls, targets)


class WordPairs(NamedTuple):
    """Pairs of words, by their rows in a window's table."""

    query: Int[ndarray, " pair"]
    key: Int[ndarray, " pair"]


def word_pairs(words: WordTable, targets: Pairs) -> WordPairs:
    """The words of the targets' owners and keys, a row for each target word."""
    word_of_key = words.row_at(targets.key)
    is_last = targets.key == words.last[word_of_key]
    key = word_of_key[is_last]
    query = np.searchsorted(words.last, targets.owner[is_last])
    return WordPairs(query, key)


def word_cells(window: Window, query: Int[ndarray, " pair"], key: Int[ndarray, " pair"]) -> Pairs:
    """Pairs of words by their rows in the window's table: those that the query word sees whole."""
    words = window.words
    query_span = words.first[query], words.last[query]
    key_span = words.first[key], words.last[key]
    is_apart = window.attention_kind.sees_apart(query_span, key_span)
    return distinct(word_spans(window, query[is_apart], key[is_apart]))


def word_spans(window: Window, query: Int[ndarray, " pair"], key: Int[ndarray, " pair"]) -> Pairs:
    """The last token of each query word with all tokens of its key word."""
    words = window.words
    places = words.last[query], words.first[key], words.last[key]
    return span_pairs(*places, attention_kind=window.attention_kind)


def _steps(window: Window) -> tuple[tuple[ndarray, ndarray], tuple[ndarray, ndarray]]:
    """The next and the previous word of the same class for each word, and of any class."""
    words = window.words
    row = np.arange(len(words))
    next_row = np.where(row + 1 < len(words), row + 1, -1)
    any_class = next_row, row - 1
    same_class = next_equal(words.upos.tolist()), nearest_equal(words.upos.tolist())
    return same_class, any_class


def _skip(
    query: Int[ndarray, " pair"],
    distractor: Int[ndarray, " pair"],
    step: Int[ndarray, " word"],
    target_cells: Int[ndarray, " pair"],
) -> Int[ndarray, " pair"]:
    """Go on past the query itself and words that are targets of the same query."""
    # each round goes one word on where a target or the query stands, until none is left
    distractor = distractor.copy()
    open_rows = np.arange(len(distractor))
    last_cell = len(target_cells) - 1
    while len(open_rows):
        query_word = query[open_rows]
        other = distractor[open_rows]
        cell = query_word * len(step) + other
        position = np.minimum(np.searchsorted(target_cells, cell), last_cell)
        is_target = target_cells[position] == cell
        is_taken = is_target | (other == query_word)
        open_rows = open_rows[(other >= 0) & is_taken]
        distractor[open_rows] = step[distractor[open_rows]]
    return distractor
