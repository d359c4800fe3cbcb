"""Features of position and structure: sinks, distances, sentences and trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.pairs import distinct, span_pairs
from headscope.studies.explain.feature import (
    Feature,
    FeatureCells,
    TokenFacts,
    all_seen,
    cells,
    seen_cells,
)

EARLY = 4
"""Number of tokens after the first that have a feature each."""
TOKEN_0 = Feature("token 0", "sink")
LATER = Feature("token 0, later", "sink")
SEPARATOR = Feature("separator", "sink")
EARLY_TOKENS = [Feature(f"early-{i}", "sink") for i in range(1, EARLY + 1)]
OFFSET = [Feature(f"offset-{d}", "position") for d in range(11)]
AHEAD = [Feature(f"offset+{d}", "position") for d in range(1, 11)]
_FAR = ((11, 16), (17, 32), (33, 64), (65, None))
_FAR_AWAY = {(low, high): Feature(f"far {low}-{high or ''}", "position") for low, high in _FAR}
_FAR_AHEAD = {(low, high): Feature(f"far +{low}-{high or ''}", "position") for low, high in _FAR}
ANY_AHEAD = Feature("ahead", "position")
LOG_AHEAD = Feature("log distance ahead", "position")
LOG_DISTANCE = Feature("log distance", "position")
CURVE = Feature("log distance squared", "position")
DISTANCE = Feature("distance", "position")
PLACE_FEATURES = (
    TOKEN_0, LATER, EARLY_TOKENS[0], LOG_DISTANCE, CURVE, DISTANCE, *OFFSET[:4],
    SEPARATOR, ANY_AHEAD, LOG_AHEAD, *AHEAD[:3],
)  # fmt: skip
"""Features of the model by sinks and distance alone. Encoders alone have those from `SEPARATOR` on;
they lack `LATER`, because all of their queries see equally many keys."""


def sinks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Token 0, the few tokens after it, and an encoder's closing token."""
    query, sees_future = np.arange(1, len(window)), window.attention_kind.sees_future
    if sees_future:
        query = np.arange(len(window))
    yield cells(TOKEN_0, query, 0)
    if sees_future:
        yield cells(SEPARATOR, query, window.closing)
    else:
        # a later query has more keys: token 0 keeps its share if its logit grows as ln q
        yield cells(LATER, query, 0, np.log(query))
    for index, feature in enumerate(EARLY_TOKENS, start=1):
        if index < window.stop:
            yield cells(feature, query[(query > index) | sees_future], index)


def distances(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Single offsets, ranges of far offsets, and smooth functions of distance; not to token 0."""
    query, key = seen_cells(window)
    back = query - key
    ranges = {(d, d): feature for d, feature in enumerate(OFFSET)} | _FAR_AWAY
    yield from _in_ranges(ranges, query, key, back)
    if window.attention_kind.sees_future:
        ranges = {(d, d): feature for d, feature in enumerate(AHEAD, start=1)} | _FAR_AHEAD
        yield from _in_ranges(ranges, query, key, -back)
        ahead = back < 0
        yield cells(ANY_AHEAD, query[ahead], key[ahead])
        yield cells(LOG_AHEAD, query[ahead], key[ahead], np.log1p(-back[ahead]))
    distance = abs(back)
    yield cells(LOG_DISTANCE, query, key, np.log1p(distance))
    yield cells(CURVE, query, key, np.log1p(distance) ** 2 / 4)
    yield cells(DISTANCE, query, key, distance / 64)


def _in_ranges(
    ranges: Mapping[tuple[int, int | None], Feature], query: ndarray, key: ndarray, steps: ndarray
) -> Iterator[FeatureCells]:
    """Cells of each feature: those whose number of steps is in its range."""
    for (low, high), feature in ranges.items():
        in_range = (steps >= low) & ((high is None) | (steps <= (high or low)))
        yield cells(feature, query[in_range], key[in_range])


def sentences(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The query's sentence and its neighbours, its first token, and any sentence's first token."""
    sentence_of_token, words = window.sentence_of_token, window.words
    if not len(words):
        return
    query, key = seen_cells(window)
    back = sentence_of_token[query] - sentence_of_token[key]
    for count, name in ((0, "same sentence"), (1, "sentence before"), (-1, "sentence after")):
        mask = back == count
        if count < 0 and not mask.any():
            continue
        yield cells(Feature(name, "syntactic"), query[mask], key[mask])
    starts = words.first[np.flatnonzero(np.diff(words.sentence, prepend=-1))]
    yield all_seen(Feature("sentence start", "syntactic"), window, starts)
    sentence = np.searchsorted(starts, np.arange(len(window)), side="right") - 1
    query = np.flatnonzero(sentence >= 0)
    yield cells(Feature("own sentence start", "syntactic"), query, starts[sentence[query]])


def trees(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Dependency links whatever their label, up to two steps away, and the roots of sentences."""
    words = window.words
    head = words.head
    has = np.flatnonzero(head >= 0)
    up = np.where(head >= 0, head[head], -1)
    two = np.flatnonzero((head >= 0) & (up >= 0))
    same = (head[:, None] == head[None, :]) & (head >= 0)[:, None]
    np.fill_diagonal(same, False)
    one, other = np.nonzero(same)
    links: tuple[tuple[str, ndarray, ndarray], ...] = (
        ("head", has, head[has]),
        ("dependent", head[has], has),
        ("head of head", two, up[two]),
        ("dependent of dependent", up[two], two),
        ("sibling", one, other),
    )
    for name, query, key in links:
        # from a word's last token to all tokens of another word that it sees, each once
        seen = window.attention_kind.sees(words.last[query], words.last[key])
        query, key = query[seen], key[seen]
        pairs = distinct(span_pairs(words.last[query], words.first[key], words.last[key]))
        yield cells(Feature(f"tree {name}", "syntactic"), pairs.query, pairs.key)
    yield all_seen(Feature("key root", "syntactic"), window, words.last[head < 0])


def entities(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any mention; links between mentions of one entity are relations."""
    if len(window.mentions):
        mention = Feature("key mention", "coreference")
        yield all_seen(mention, window, np.unique(window.mentions.last))
