"""Features of place and structure: first tokens, distances, resting tokens, sentences, trees."""

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
"""Tokens after the first that may be resting places wherever the query is."""
_DISTANCE_WORDS = {0: "the token itself", 1: "the token before", 2: "the token before last"}

_AHEAD_WORDS = {1: "the token after", 2: "the token after next"}

TOKEN_0 = Feature("token 0", "token 0", "sink")
LATER = Feature("token 0, later", "token 0 the more, the later it is", "sink")
SEPARATOR = Feature("separator", "the token that closes the text", "sink")
EARLY_TOKENS = [Feature(f"early-{i}", f"the text's token {i}", "sink") for i in range(1, EARLY + 1)]
OFFSET = [
    Feature(f"offset-{d}", _DISTANCE_WORDS.get(d, f"{d} tokens back"), "position")
    for d in range(11)
]
AHEAD = [
    Feature(f"offset+{d}", _AHEAD_WORDS.get(d, f"{d} tokens ahead"), "position")
    for d in range(1, 11)
]
_FAR_AWAY = {
    (low, high): Feature(
        f"far {low}-{high or ''}",
        f"{low} {f'to {high}' if high else 'or more'} tokens back",
        "position",
    )
    for low, high in ((11, 16), (17, 32), (33, 64), (65, None))
}
_FAR_AHEAD = {
    bounds: Feature(far.name.replace(" ", " +"), far.words.replace("back", "ahead"), far.kind)
    for bounds, far in _FAR_AWAY.items()
}
ANY_AHEAD = Feature("ahead", "any later token", "position")
LOG_AHEAD = Feature("log distance ahead", "farther later tokens (logarithm)", "position")
LOG_DISTANCE = Feature("log distance", "farther tokens (logarithm)", "position")
CURVE = Feature("log distance squared", "farther tokens (logarithm, squared)", "position")
DISTANCE = Feature("distance", "farther tokens", "position")
PLACE_RULE = (
    TOKEN_0, LATER, EARLY_TOKENS[0], LOG_DISTANCE, CURVE, DISTANCE, *OFFSET[:4],
    SEPARATOR, ANY_AHEAD, LOG_AHEAD, *AHEAD[:3],
)  # fmt: skip
"""What the rule of sinks and distance alone is made of; those from `SEPARATOR` on are an encoder's,
which in turn has no `LATER`: all of its queries see equally many keys."""


def sinks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Token 0 and the few after it, for every later query; an encoder's closing token."""
    query, sees_future = np.arange(1, len(window)), window.attention_kind.sees_future
    if sees_future:
        query = np.arange(len(window))
    yield cells(TOKEN_0, query, 0)
    if sees_future:
        yield cells(SEPARATOR, query, window.closing)
    else:
        # more keys share a later query's attention: what it takes to hold token 0's share is ln q
        yield cells(LATER, query, 0, np.log(query))
    for index, feature in enumerate(EARLY_TOKENS, start=1):
        if index < window.stop:
            yield cells(feature, query[(query > index) | sees_future], index)


def distances(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Single offsets, stretches of far ones, and smooth measures; token 0 is a sink, not far."""
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
    """The cells of each feature whose key is so many steps away, in one direction."""
    for (low, high), feature in ranges.items():
        in_range = (steps >= low) & ((high is None) | (steps <= (high or low)))
        yield cells(feature, query[in_range], key[in_range])


def resting(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any token that some layer rests on, and the first and the second such token of the text."""
    tokens = frozenset[int]().union(*lexicon.resting.values())
    keys = np.flatnonzero(np.isin(window.tokens, sorted(tokens)))
    keys = keys[(keys > 0) & (keys < window.stop)]
    listed_tokens = ", ".join(f"“{lexicon.text_of(token)}”" for token in sorted(tokens))
    for name, words, part in (
        ("resting token", "any resting token", slice(None)),
        ("first resting token", "the text's first resting token", slice(0, 1)),
        ("second resting token", "the text's second resting token", slice(1, 2)),
    ):
        if len(keys):
            feature = Feature(name, f"{words} ({listed_tokens})", "lexical", tokens)
            yield all_seen(feature, window, keys[part], itself=False)


def sentences(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The query's sentence and those beside it, their first words, and any sentence's first."""
    sentence_of_token, words = window.sentence_of_token, window.words
    if not len(words):
        return
    query, key = seen_cells(window)
    back = sentence_of_token[query] - sentence_of_token[key]
    for count, name in ((0, "same sentence"), (1, "sentence before"), (-1, "sentence after")):
        mask = back == count
        if count < 0 and not mask.any():
            continue
        yield cells(Feature(name, f"the {name}", "syntactic"), query[mask], key[mask])
    starts = words.first[np.flatnonzero(np.diff(words.sentence, prepend=-1))]
    any_start = Feature("sentence start", "the first token of any sentence", "syntactic")
    yield all_seen(any_start, window, starts)
    sentence = np.searchsorted(starts, np.arange(len(window)), side="right") - 1
    query = np.flatnonzero(sentence >= 0)
    own_start = Feature("own sentence start", "the first token of its sentence", "syntactic")
    yield cells(own_start, query, starts[sentence[query]])


def trees(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Links of the dependency tree whatever their label, one and two steps; words' own pieces."""
    words = window.words
    head = words.head
    has = np.flatnonzero(head >= 0)
    up = np.where(head >= 0, head[head], -1)
    two = np.flatnonzero((head >= 0) & (up >= 0))
    same = (head[:, None] == head[None, :]) & (head >= 0)[:, None]
    np.fill_diagonal(same, False)
    one, other = np.nonzero(same)
    links: tuple[tuple[str, str, ndarray, ndarray], ...] = (
        ("head", "the word that governs it", has, head[has]),
        ("dependent", "a word that it governs", head[has], has),
        ("head of head", "the word that governs its governor", two, up[two]),
        ("dependent of dependent", "a word two steps below it", up[two], two),
        ("sibling", "a word of the same governor", one, other),
    )
    for name, meaning, query, key in links:
        # from a word's last token to all tokens of another word that it sees, each once
        seen = window.attention_kind.sees(words.last[query], words.last[key])
        query, key = query[seen], key[seen]
        pairs = distinct(span_pairs(words.last[query], words.first[key], words.last[key]))
        yield cells(Feature(f"tree {name}", meaning, "syntactic"), pairs.query, pairs.key)
    roots = Feature("key root", "any main word of a sentence", "syntactic")
    yield all_seen(roots, window, words.last[head < 0])


def entities(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any mention; those of one entity are relations of the table."""
    if len(window.mentions):
        mention = Feature("key mention", "the head word of any mention", "coreference")
        yield all_seen(mention, window, np.unique(window.mentions.last))
