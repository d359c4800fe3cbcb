"""Features of tokens and words: classes, spelling, marks, repeats, and baselines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.baselines import (
    ALL_BASELINES,
    BASELINES,
    FALLING_BACK,
    OFFSET_BASELINES,
    OFFSETS_AHEAD,
    PHRASE_BASELINES,
    UNION_BASELINES,
    UNION_BASELINES_AHEAD,
    picks,
)
from headscope.relations.pairs import span_pairs
from headscope.relations.types.delimiter import kinds_of
from headscope.relations.word_rows import CLASSES, UPOS, nearest, of_class
from headscope.studies.explain.feature import (
    Feature,
    FeatureCells,
    TokenFacts,
    all_seen,
    cells,
    is_word,
    seen_cells,
)

_MARKS = ("punctuation", "sentence-end", "newline", "quote-bracket")
_OF_TWO = {form.format(name) for name in CLASSES for form in FALLING_BACK}
"""Baselines that are not features: each picks what one of two others picks."""
_NO_FEATURES = {
    *("own", *OFFSET_BASELINES, *OFFSETS_AHEAD, *UNION_BASELINES, *UNION_BASELINES_AHEAD),
    *PHRASE_BASELINES,
    *_OF_TWO,
}
_FEATURES = {name for name in ALL_BASELINES if name.removeprefix("later-") not in _NO_FEATURES}
"""Baselines that are features: those of `BASELINES` for every model, the others for encoders."""


def _kind(name: str) -> str:
    return "delimiter" if "PUNCT" in name else "lexical"


def key_words(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Words of a class, and the window's first word of that class."""
    for upos in UPOS:
        of_upos = window.words.upos == upos
        if not of_upos.any():
            continue
        first = window.words.first[of_upos]
        last = window.words.last[of_upos]
        pieces = np.unique(span_pairs(last, first, last).key)
        yield all_seen(Feature(f"key {upos}", _kind(upos)), window, pieces)
        first_word = np.arange(first[0], last[0] + 1)
        feature = Feature(f"first {upos}", _kind(upos))
        yield all_seen(feature, window, first_word, itself=False)


def spelling(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Pieces of words, capitals, digits, tokens at their first occurrence, and common tokens."""
    words = window.words
    tokens = window.tokens
    has_pieces = words.last > words.first
    begins = [text.strip()[:1] for text in window.strings]
    _, first_occurrence = np.unique(tokens, return_index=True)
    # features that all texts share, then the most frequent tokens of these
    keys_by_name = {
        "key first piece": words.first[has_pieces],
        "key last piece": words.last[has_pieces],
        "key capitalised": np.flatnonzero([letter.isupper() for letter in begins]),
        "key digit": np.flatnonzero([letter.isdigit() for letter in begins]),
        "key new": np.sort(first_occurrence),
    }
    for name, keys in keys_by_name.items():
        inner = keys[(keys > 0) & (keys < window.stop)]
        yield all_seen(Feature(name, "lexical"), window, inner)
    for token in lexicon.common:
        keys = np.flatnonzero(tokens == token)
        keys = keys[keys > 0]
        if not len(keys):
            continue
        name = f"token {token} {lexicon.text_of(token)}"
        kind = "lexical" if is_word(lexicon.strings[token]) else "delimiter"
        yield all_seen(Feature(name, kind), window, keys)
        first = Feature(f"first {name}", kind)
        yield all_seen(first, window, keys[:1], itself=False)


def rarity(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Rarity of the key's token in the fitting text: −ln(frequency) / 4."""
    total = 1 + sum(lexicon.counts.values())
    counts = []
    for token in window.tokens.tolist():
        counts.append(lexicon.counts.get(token, 0))
    inverse_frequency = total / (1 + np.array(counts))
    rare = np.log(inverse_frequency) / 4
    query, key = seen_cells(window)
    yield cells(Feature("key rare", "lexical"), query, key, rare[key])


def marks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Marks of each kind: any, the first, the nearest, and the token after the nearest."""
    kinds_of_token = kinds_of(window)
    for kind in _MARKS:
        is_mark = np.array([kind in kinds for kinds in kinds_of_token])
        is_mark[0] = False
        keys = np.flatnonzero(is_mark)
        if not len(keys):
            continue
        yield all_seen(Feature(f"mark {kind}", "delimiter"), window, keys)
        first = Feature(f"first mark {kind}", "delimiter")
        yield all_seen(first, window, keys[:1], itself=False)
        query, near = _nearest_to_all(is_mark)
        yield cells(Feature(f"nearest mark {kind}", "delimiter"), query, near)
        yield cells(Feature(f"after mark {kind}", "delimiter"), query, near + 1)
        if window.attention_kind.sees_future:
            query, near = _next_to_all(is_mark)
            yield cells(Feature(f"next mark {kind}", "delimiter"), query, near)
            yield cells(Feature(f"before mark {kind}", "delimiter"), query, near - 1)


def repeat_features(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Earlier copies of the query's token, the one and two tokens after them, and those before."""
    tokens = window.tokens
    # pairs of equal tokens; those ahead are features of their own
    is_equal = tokens[:, None] == tokens[None, :]
    if window.attention_kind.sees_future:
        yield from _repeats_ahead(np.triu(is_equal, k=1))
    same = np.tril(is_equal, k=-1)
    same[:, 0] = False
    query, key = np.nonzero(same)
    yield cells(Feature("same token", "lexical"), query, key)
    # True if the tokens before the query and the key are equal too
    two = np.zeros_like(same)
    two[1:, 1:] = same[1:, 1:] & same[:-1, :-1]
    # keys beside an earlier copy
    yield _beside_copies("follower", same, 1)
    yield _beside_copies("follower-2", same, 2)
    yield _beside_copies("before same", same, -1)
    yield _beside_copies("follower of two", two, 1)
    # the nearest copy alone, and the token after it
    back = same[:, ::-1].argmax(1)
    last = np.where(same.any(1), len(window) - 1 - back, -1)
    query = np.flatnonzero(last > 0)
    yield cells(Feature("nearest same token", "lexical"), query, last[query])
    is_before = last[query] + 1 < query
    query = query[is_before]
    yield cells(Feature("nearest follower", "induction"), query, last[query] + 1)


def _beside_copies(name: str, copies: Bool[ndarray, "query key"], step: int) -> FeatureCells:
    """The tokens some steps after earlier copies, without token 0 and the query."""
    query, copy = np.nonzero(copies)
    key = copy + step
    is_between = (key < query) & (key > 0)
    return cells(Feature(name, "induction"), query[is_between], key[is_between])


def _repeats_ahead(same: Bool[ndarray, "query key"]) -> Iterator[FeatureCells]:
    """Later copies of the query's token, and their neighbours."""
    steps = {
        Feature("same token ahead", "lexical"): 0,
        Feature("follower ahead", "induction"): 1,
        Feature("before same ahead", "induction"): -1,
    }
    query, copy = np.nonzero(same)
    for feature, step in steps.items():
        key = copy + step
        is_ahead = (key > query) & (key < len(same) - 1)
        yield cells(feature, query[is_ahead], key[is_ahead])
    has_copy = np.flatnonzero(same.any(1))
    next_copy = same[has_copy].argmax(1)
    yield cells(Feature("next same token", "lexical"), has_copy, next_copy)


def baselines(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """One key per query: the nearest verb, the second noun back, the sentence's first word."""
    words = window.words
    if not len(words):
        return
    sees_future = window.attention_kind.sees_future
    names = ALL_BASELINES if sees_future else BASELINES
    for name, keys in zip(names, picks(window), strict=False):
        if name in _FEATURES:
            query = np.flatnonzero(keys >= 0)
            yield cells(Feature(name, _kind(name)), query, keys[query])
    # the nearest word of a class, whatever the query is
    for name in CLASSES:
        last_tokens = words.last[of_class(window, name)]
        is_last = np.zeros(len(window), bool)
        is_last[last_tokens] = True
        query, near = _nearest_to_all(is_last)
        yield cells(Feature(f"nearest {name} to any", _kind(name)), query, near)
        if sees_future:
            query, near = _next_to_all(is_last)
            yield cells(Feature(f"next {name} to any", _kind(name)), query, near)


def _nearest_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the nearest earlier key of a mask."""
    key = nearest(mask)
    query = np.flatnonzero(key >= 0)
    return query, key[query]


def _next_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the next later key of a mask."""
    last = len(mask) - 1
    query_from_end, key_from_end = _nearest_to_all(mask[::-1])
    query = last - query_from_end[::-1]
    key = last - key_from_end[::-1]
    return query, key
