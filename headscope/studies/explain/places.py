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
    TOKEN_0,
    LATER,
    EARLY_TOKENS[0],
    LOG_DISTANCE,
    CURVE,
    DISTANCE,
    *OFFSET[:4],
    SEPARATOR,
    ANY_AHEAD,
    LOG_AHEAD,
    *AHEAD[:3],
)
"""Features of the model by sinks and distance alone. Encoders alone have those from `SEPARATOR` on;
they lack `LATER`, because all of their queries see equally many keys."""


def sinks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Token 0, the few tokens after it, and an encoder's closing token."""
    sees_future = window.attention_kind.sees_future
    query = np.arange(0 if sees_future else 1, len(window))
    yield cells(TOKEN_0, query, 0)
    if sees_future:
        yield cells(SEPARATOR, query, window.closing)
    else:
        # a later query has more keys: token 0 keeps its share if its logit grows as ln q
        yield cells(LATER, query, 0, np.log(query))
    for index, feature in enumerate(EARLY_TOKENS, start=1):
        if index < window.stop:
            sees_token = (query > index) | sees_future
            yield cells(feature, query[sees_token], index)


def distances(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Single offsets, ranges of far offsets, and smooth functions of distance; not to token 0."""
    query, key = seen_cells(window)
    back = query - key
    # single offsets and ranges, back and ahead
    offsets = {(steps, steps): feature for steps, feature in enumerate(OFFSET)}
    yield from _in_ranges(offsets | _FAR_AWAY, query, key, back)
    if window.attention_kind.sees_future:
        offsets = {(steps, steps): feature for steps, feature in enumerate(AHEAD, start=1)}
        yield from _in_ranges(offsets | _FAR_AHEAD, query, key, -back)
        is_ahead = back < 0
        query_ahead = query[is_ahead]
        key_ahead = key[is_ahead]
        yield cells(ANY_AHEAD, query_ahead, key_ahead)
        yield cells(LOG_AHEAD, query_ahead, key_ahead, np.log1p(-back[is_ahead]))
    # smooth functions of distance
    distance = abs(back)
    log_distance = np.log1p(distance)
    yield cells(LOG_DISTANCE, query, key, log_distance)
    yield cells(CURVE, query, key, log_distance**2 / 4)
    yield cells(DISTANCE, query, key, distance / 64)


def _in_ranges(
    ranges: Mapping[tuple[int, int | None], Feature], query: ndarray, key: ndarray, steps: ndarray
) -> Iterator[FeatureCells]:
    """Cells of each feature: those whose number of steps is in its range."""
    for (low, high), feature in ranges.items():
        in_range = steps >= low
        if high is not None:
            in_range &= steps <= high
        yield cells(feature, query[in_range], key[in_range])


def sentences(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The query's sentence and its neighbours, its first token, and any sentence's first token."""
    words = window.words
    if not len(words):
        return
    # the sentence of the query and its neighbours
    query, key = seen_cells(window)
    sentence_of_token = window.sentence_of_token
    back = sentence_of_token[query] - sentence_of_token[key]
    steps = {"same sentence": 0, "sentence before": 1, "sentence after": -1}
    for name, count in steps.items():
        is_there = back == count
        if count < 0 and not is_there.any():
            continue
        yield cells(Feature(name, "syntactic"), query[is_there], key[is_there])
    # beginnings of sentences: any of them, and that of the query's own
    is_first_word = np.diff(words.sentence, prepend=-1) != 0
    starts = words.first[is_first_word]
    yield all_seen(Feature("sentence start", "syntactic"), window, starts)
    positions = np.arange(len(window))
    sentence = np.searchsorted(starts, positions, side="right") - 1
    query = np.flatnonzero(sentence >= 0)
    start_of_query = starts[sentence[query]]
    yield cells(Feature("own sentence start", "syntactic"), query, start_of_query)


def trees(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Dependency links whatever their label, up to two steps away, and the roots of sentences."""
    # links of one and two steps
    words = window.words
    head = words.head
    has_head = head >= 0
    dependent = np.flatnonzero(has_head)
    head_of_head = np.where(has_head, head[head], -1)
    grandchild = np.flatnonzero(has_head & (head_of_head >= 0))
    is_sibling = (head[:, None] == head[None, :]) & has_head[:, None]
    np.fill_diagonal(is_sibling, False)
    sibling, other_sibling = np.nonzero(is_sibling)
    links = {
        "head": (dependent, head[dependent]),
        "dependent": (head[dependent], dependent),
        "head of head": (grandchild, head_of_head[grandchild]),
        "dependent of dependent": (head_of_head[grandchild], grandchild),
        "sibling": (sibling, other_sibling),
    }
    for name, (query, key) in links.items():
        # from a word's last token to all tokens of another word that it sees, each once
        is_seen = window.attention_kind.sees(words.last[query], words.last[key])
        query_token = words.last[query[is_seen]]
        first_key = words.first[key[is_seen]]
        last_key = words.last[key[is_seen]]
        pairs = distinct(span_pairs(query_token, first_key, last_key))
        yield cells(Feature(f"tree {name}", "syntactic"), pairs.query, pairs.key)
    roots = words.last[~has_head]
    yield all_seen(Feature("key root", "syntactic"), window, roots)


def entities(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any mention; links between mentions of one entity are relations."""
    if len(window.mentions):
        mention = Feature("key mention", "coreference")
        yield all_seen(mention, window, np.unique(window.mentions.last))
