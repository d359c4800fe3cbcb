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
    CLASSES,
    EARLIER,
    FALLING_BACK,
    OFFSETS,
    PHRASE_BASELINES,
    UPOS,
    nearest,
    of_class,
    picks,
)
from headscope.relations.delimiter import kinds_of
from headscope.relations.pairs import span_pairs
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
_FEATURES = {
    name
    for name in (*BASELINES[1 + OFFSETS :], *ALL_BASELINES[len(EARLIER) + OFFSETS :])
    if name.removeprefix("later-") not in (*_OF_TWO, *PHRASE_BASELINES)
}
"""Baselines that are features: those of `BASELINES` for every model, the others for encoders."""


def _kind(name: str) -> str:
    return "delimiter" if "PUNCT" in name else "lexical"


def key_words(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Words of a class, and the window's first word of that class."""
    for upos in UPOS:
        of_upos = window.words.upos == upos
        first, last = window.words.first[of_upos], window.words.last[of_upos]
        if len(first):
            pieces = np.unique(span_pairs(last, first, last).key)
            yield all_seen(Feature(f"key {upos}", _kind(upos)), window, pieces)
            first_word = np.arange(first[0], last[0] + 1)
            feature = Feature(f"first {upos}", _kind(upos))
            yield all_seen(feature, window, first_word, itself=False)


def spelling(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Pieces of words, capitals, digits, tokens at their first occurrence, and common tokens."""
    words, tokens = window.words, window.tokens
    inner = words.last > words.first
    begins = [text.strip()[:1] for text in window.strings]
    for name, keys in (
        ("key first piece", words.first[inner]),
        ("key last piece", words.last[inner]),
        ("key capitalised", np.flatnonzero([x.isupper() for x in begins])),
        ("key digit", np.flatnonzero([x.isdigit() for x in begins])),
        ("key new", np.sort(np.unique(tokens, return_index=True)[1])),
    ):
        keys = keys[(keys > 0) & (keys < window.stop)]
        yield all_seen(Feature(name, "lexical"), window, keys)
    for token in lexicon.common:
        keys = np.flatnonzero(tokens == token)
        keys = keys[keys > 0]
        if len(keys):
            name = f"token {token} {lexicon.text_of(token)}"
            kind = "lexical" if is_word(lexicon.strings[token]) else "delimiter"
            yield all_seen(Feature(name, kind), window, keys)
            first = Feature(f"first {name}", kind)
            yield all_seen(first, window, keys[:1], itself=False)


def rarity(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Rarity of the key's token in the fitting text: −ln(frequency) / 4."""
    total = 1 + sum(lexicon.counts.values())
    counts = np.array([lexicon.counts.get(int(token), 0) for token in window.tokens])
    rare = np.log(total / (1 + counts)) / 4
    query, key = seen_cells(window)
    yield cells(Feature("key rare", "lexical"), query, key, rare[key])


def marks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Marks of each kind: any, the first, the nearest, and the token after the nearest."""
    kinds_of_token = kinds_of(window)
    for kind in _MARKS:
        mask = np.array([kind in kinds for kinds in kinds_of_token])
        mask[0] = False
        keys = np.flatnonzero(mask)
        if len(keys):
            query, near = _nearest_to_all(mask)
            yield all_seen(Feature(f"mark {kind}", "delimiter"), window, keys)
            first = Feature(f"first mark {kind}", "delimiter")
            yield all_seen(first, window, keys[:1], itself=False)
            yield cells(Feature(f"nearest mark {kind}", "delimiter"), query, near)
            yield cells(Feature(f"after mark {kind}", "delimiter"), query, near + 1)
            if window.attention_kind.sees_future:
                query, near = _next_to_all(mask)
                yield cells(Feature(f"next mark {kind}", "delimiter"), query, near)
                yield cells(Feature(f"before mark {kind}", "delimiter"), query, near - 1)


def repeat_features(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Earlier copies of the query's token, the one and two tokens after them, and those before."""
    tokens, length = window.tokens, len(window)
    equal = tokens[:, None] == tokens[None, :]
    if window.attention_kind.sees_future:
        yield from _repeats_ahead(np.triu(equal, k=1))
    same = np.tril(equal, k=-1)
    same[:, 0] = False
    yield cells(Feature("same token", "lexical"), *np.nonzero(same))
    two = np.zeros_like(same)
    two[1:, 1:] = same[1:, 1:] & same[:-1, :-1]
    for name, mask, step in (
        ("follower", same, 1),
        ("follower-2", same, 2),
        ("before same", same, -1),
        ("follower of two", two, 1),
    ):
        query, key = np.nonzero(mask)
        key = key + step
        apart = (key < query) & (key > 0)
        yield cells(Feature(name, "induction"), query[apart], key[apart])
    last = np.where(same.any(1), length - 1 - same[:, ::-1].argmax(1), -1)
    query = np.flatnonzero(last > 0)
    yield cells(Feature("nearest same token", "lexical"), query, last[query])
    query = query[last[query] + 1 < query]
    yield cells(Feature("nearest follower", "induction"), query, last[query] + 1)


def _repeats_ahead(same: Bool[ndarray, "query key"]) -> Iterator[FeatureCells]:
    """Later copies of the query's token, and their neighbours."""
    for name, kind, step in (
        ("same token ahead", "lexical", 0),
        ("follower ahead", "induction", 1),
        ("before same ahead", "induction", -1),
    ):
        query, key = np.nonzero(same)
        apart = (key + step > query) & (key + step < len(same) - 1)
        yield cells(Feature(name, kind), query[apart], key[apart] + step)
    query = np.flatnonzero(same.any(1))
    yield cells(Feature("next same token", "lexical"), query, same[query].argmax(1))


def baselines(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """One key per query: the nearest verb, the second noun back, the sentence's first word."""
    if not len(window.words):
        return
    sees_future = window.attention_kind.sees_future
    names = ALL_BASELINES if sees_future else BASELINES
    for name, keys in zip(names, picks(window), strict=False):
        if name in _FEATURES:
            query = np.flatnonzero(keys >= 0)
            yield cells(Feature(name, _kind(name)), query, keys[query])
    for name in CLASSES:
        mask = np.zeros(len(window), bool)
        mask[window.words.last[of_class(window.words, name)]] = True
        yield cells(Feature(f"nearest {name} to any", _kind(name)), *_nearest_to_all(mask))
        if sees_future:
            yield cells(Feature(f"next {name} to any", _kind(name)), *_next_to_all(mask))


def _nearest_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the nearest earlier key of a mask."""
    key = nearest(mask)
    query = np.flatnonzero(key >= 0)
    return query, key[query]


def _next_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the next later key of a mask."""
    query, back = _nearest_to_all(mask[::-1])
    return len(mask) - 1 - query[::-1], len(mask) - 1 - back[::-1]
