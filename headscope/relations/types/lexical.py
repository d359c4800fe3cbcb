"""Lexical heads: by word class and spelling alone, without syntax.

Encoders also have the next later word of a class, and words and pieces on either side.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.relations.baselines import (
    FALLING_BACK,
    PHRASE_BASELINES,
    UNION_BASELINES,
    UNION_BASELINES_AHEAD,
)
from headscope.relations.controls import (
    DRAWS,
    same_distance,
    word_cells,
    word_pairs,
    word_spans,
    words_of_its_class,
)
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, no_pairs, pairs, without
from headscope.relations.relation import (
    Baseline,
    DrawControl,
    FindPairs,
    FindPicks,
    Relation,
    Threshold,
    above_baseline,
    draws_nothing,
)
from headscope.relations.word_rows import nearest, nearest_equal, next_equal, of_class

THRESHOLD = 0.2
SOURCE = (
    "ours: a fifth of a head's attention on one earlier word, twice the threshold of syntax, "
    "because every word is a query"
)
_OF_PHRASES = frozenset((*PHRASE_BASELINES, *(f"later-{name}" for name in PHRASE_BASELINES)))
"""Baselines that are equivalent to the relations in most sentences."""
_UNIONS = (*UNION_BASELINES, *UNION_BASELINES_AHEAD)
"""Baselines that are the relation itself, whose targets are of one class."""
NEARBY = 8
"""Words within which a head of a class is beaten by a head that favours near words of the class."""
NEAREST = (
    *("NOUN", "PROPN", "VERB", "AUX", "ADJ", "ADV", "ADP"),
    *("DET", "PRON", "CCONJ", "SCONJ", "PART", "NUM"),
)


def nearest_of(window: Window, name: str) -> Pairs:
    """Every word with the nearest earlier word of a class."""
    return _to_words(window, nearest(of_class(window, name)))


def next_of(window: Window, name: str) -> Pairs:
    """Every word with the next later word of a class."""
    return _to_words(window, _following(of_class(window, name)))


def nearby_of(window: Window, name: str) -> Int[ndarray, " position"]:
    """The nearest earlier word of a class within `NEARBY` words, or else the word before.

    A head whose attention falls with the distance picks it, however much it favours the class.
    """
    row = np.arange(len(window.words))
    near = nearest(of_class(window, name))
    is_nearby = (near >= 0) & (row - near <= NEARBY)
    picked = np.where(is_nearby, near, row - 1)
    return _last_tokens(window, picked)


def nearby_later(window: Window, name: str) -> Int[ndarray, " position"]:
    """The next later word of a class within `NEARBY` words, or else the word after."""
    row = np.arange(len(window.words))
    near = _following(of_class(window, name))
    is_nearby = (near >= 0) & (near - row <= NEARBY)
    has_next = row + 1 < len(row)
    following = np.where(has_next, row + 1, -1)
    picked = np.where(is_nearby, near, following)
    return _last_tokens(window, picked)


def _last_tokens(window: Window, word: Int[ndarray, " word"]) -> Int[ndarray, " position"]:
    """At each word's last token that of another word; −1 for none, and between words."""
    last = window.words.last
    picked = np.full(len(window), -1)
    picked[last] = np.where(word >= 0, last[word], -1)
    return picked


def next_alike(window: Window) -> Pairs:
    """Every word with the next later word of its own class."""
    return _to_words(window, next_equal(window.words.upos.tolist()))


def nearest_alike(window: Window) -> Pairs:
    """Every word with the nearest earlier word of its own class."""
    return _to_words(window, nearest_equal(window.words.upos.tolist()))


def same_word(window: Window) -> Pairs:
    """Every word with all earlier words of the same lemma and class; marks are not words.

    In an encoder with the later ones too.
    """
    words = window.words
    _, lemma = np.unique(words.lemma, return_inverse=True)
    _, upos = np.unique(words.upos, return_inverse=True)
    number = lemma * len(words) + upos
    is_same = number[:, None] == number[None, :]
    is_word = of_class(window, "word")
    query, key = np.nonzero(is_same & is_word[:, None])
    return word_cells(window, query, key)


@draws_nothing
def other_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, words of the target's class but of another lemma, the next nearer and farther."""
    lemma = window.words.lemma
    candidates = words_of_its_class(window, targets, rng)
    query, key = word_pairs(window.words, candidates)
    is_other = lemma[query] != lemma[key]
    return without(word_spans(window, query[is_other], key[is_other]), targets)


def earlier_pieces(window: Window) -> Pairs:
    """Each later piece of a word with all earlier pieces of that word, in an encoder all others."""
    words = window.words
    query: list[Int[ndarray, " pair"]] = []
    key: list[Int[ndarray, " pair"]] = []
    for i in np.flatnonzero(words.last > words.first):
        pieces = int(words.last[i] - words.first[i]) + 1
        # each pair in both directions: `pairs` drops those that the query does not see
        later, earlier = np.tril_indices(pieces, k=-1)
        later_piece = words.first[i] + later
        earlier_piece = words.first[i] + earlier
        query += [later_piece, earlier_piece]
        key += [earlier_piece, later_piece]
    if not query:
        return no_pairs()
    return pairs(np.concatenate(query), np.concatenate(key), attention_kind=window.attention_kind)


def across_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """The same distance from other queries, across the boundary of a word."""
    controls = same_distance(window, targets, rng)
    positions = np.arange(len(window))
    word = window.words.row_at(positions)
    is_across = word[controls.query] != word[controls.key]
    return controls.take(is_across)


def first_piece(window: Window) -> Pairs:
    """The third and later pieces of a word with its first."""
    words = window.words
    later_pieces = words.last - words.first
    long_words = np.flatnonzero(later_pieces > 1)
    queries = []
    for i in long_words:
        queries.append(np.arange(words.first[i] + 2, words.last[i] + 1))
    if not queries:
        return no_pairs()
    counts = [len(query) for query in queries]
    first = np.repeat(words.first[long_words], counts)
    return pairs(np.concatenate(queries), first)


def other_pieces(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the pieces between the word's first and the query."""
    owner = np.repeat(targets.query, DRAWS)
    first = np.repeat(targets.key, DRAWS)
    pieces_between = owner - first - 1
    piece = rng.random(len(owner)) * pieces_between
    key = first + 1 + piece.astype(np.int64)
    return pairs(owner, key)


def _to_words(window: Window, word: Int[ndarray, " word"]) -> Pairs:
    query = np.flatnonzero(word >= 0)
    return word_cells(window, query, word[query])


def _following(mask: Bool[ndarray, " word"]) -> Int[ndarray, " word"]:
    """For each word the next later one of those in a mask, −1 if absent."""
    mirrored = nearest(mask[::-1])[::-1]
    row = len(mask) - 1 - mirrored
    return np.where(mirrored >= 0, row, -1)


def _equivalent_baselines(side: str, name: str) -> tuple[str, ...]:
    """Baselines that are equivalent to the relation in most sentences."""
    forms = ("nearest-{}", "nearest-{}-in-sentence", *FALLING_BACK)
    return tuple(side + form.format(name) for form in forms)


def _row(
    name: str,
    meaning: str,
    find: FindPairs,
    control: DrawControl,
    *same: str,
    near_key: FindPicks | None = None,
) -> Relation:
    return Relation(
        "lexical",
        name,
        find,
        control,
        above_baseline(THRESHOLD, SOURCE, meaning),
        baseline=Baseline(
            near_key,
            without=_OF_PHRASES | {*same},
            by_class=False,
            any_word=near_key is not None,
        ),
    )


_NEAREST, _NEXT = (
    tuple(
        _row(
            f"{form}-{name}",
            f"{meaning} {name}",
            partial(find, name=name),
            words_of_its_class,
            *_equivalent_baselines(side, name),
            *_UNIONS,
            near_key=partial(nearby, name=name),
        )
        for name in NEAREST
    )
    for form, meaning, find, nearby, side in (
        ("nearest", "the nearest earlier", nearest_of, nearby_of, ""),
        ("next", "the next", next_of, nearby_later, "later-"),
    )
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
    """Relations to words and their pieces that are `earlier` or `other`."""
    thresholds = Threshold(THRESHOLD, SOURCE, f"{which} pieces of the same word")
    meaning = f"{which} occurrences of the same word"
    same: tuple[str, ...] = ("same-lemma", "first-same-lemma")
    if which != "earlier":
        same += ("later-same-lemma", "later-first-same-lemma")
    return (
        _row("duplicate", meaning, same_word, other_words, *same),
        Relation("lexical", "in-word", earlier_pieces, across_words, thresholds),
    )


RELATIONS = (*_NEAREST, _SAME_CLASS, *_within("earlier"), _FIRST_PIECE)
ON_BOTH_SIDES = (
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
    order=30,
    colour="#999933",
    relations=RELATIONS,
    relations_by_kind={BIDIRECTIONAL: ON_BOTH_SIDES},
    looks_at="the nearest word of a class, the same class, the same word, pieces of the same word",
    control_keys="other words of the class, nearer and farther; at hard queries every other word; "
    "for pieces of words the same distance across words",
    behaviour="text",
)
