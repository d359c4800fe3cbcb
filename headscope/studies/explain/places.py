"""Features of place and structure: first tokens, distances, resting tokens, sentences, trees."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.pairs import distinct, span_pairs
from headscope.studies.explain.feature import Feature, FeatureCells, TokenFacts, after, cells, lower

EARLY = 4
"""Tokens after the first that may be resting places wherever the query is."""
_DISTANCE_WORDS = {0: "the token itself", 1: "the token before", 2: "the token before last"}

TOKEN_0 = Feature("token 0", "token 0", "sink")
LATER = Feature("token 0, later", "token 0 the more, the later it is", "sink")
EARLY_TOKENS = [Feature(f"early-{i}", f"the text's token {i}", "sink") for i in range(1, EARLY + 1)]
OFFSET = [
    Feature(f"offset-{d}", _DISTANCE_WORDS.get(d, f"{d} tokens back"), "position")
    for d in range(11)
]
_FAR_AWAY = {
    (low, high): Feature(
        f"far {low}-{high or ''}",
        f"{low} {f'to {high}' if high else 'or more'} tokens back",
        "position",
    )
    for low, high in ((11, 16), (17, 32), (33, 64), (65, None))
}
LOG_DISTANCE = Feature("log distance", "farther tokens (logarithm)", "position")
CURVE = Feature("log distance squared", "farther tokens (logarithm, squared)", "position")
DISTANCE = Feature("distance", "farther tokens", "position")
PLACE_RULE = (TOKEN_0, LATER, EARLY_TOKENS[0], LOG_DISTANCE, CURVE, DISTANCE, *OFFSET[:4])
"""What the rule of token 0 and distance alone is made of."""


def sinks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Token 0 and the few after it, for every later query."""
    query = np.arange(1, len(window))
    yield cells(TOKEN_0, query, 0)
    # more keys share a later query's attention: what it takes to hold token 0's share is ln q
    yield cells(LATER, query, 0, np.log(query))
    for index, feature in enumerate(EARLY_TOKENS, start=1):
        yield cells(feature, query[query > index], index)


def distances(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Single offsets, stretches of far ones, and smooth measures; token 0 is a sink, not far."""
    query, key = lower(window)
    distance = query - key
    ranges = {(d, d): feature for d, feature in enumerate(OFFSET)} | _FAR_AWAY
    for (low, high), feature in ranges.items():
        in_range = (distance >= low) & (distance <= (len(window) if high is None else high))
        yield cells(feature, query[in_range], key[in_range])
    yield cells(LOG_DISTANCE, query, key, np.log1p(distance))
    yield cells(CURVE, query, key, np.log1p(distance) ** 2 / 4)
    yield cells(DISTANCE, query, key, distance / 64)


def resting(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any token that some layer rests on, and the first and the second such token of the text."""
    tokens = frozenset[int]().union(*lexicon.resting.values())
    keys = np.flatnonzero(np.isin(window.tokens, sorted(tokens)))
    keys = keys[keys > 0]
    listed_tokens = ", ".join(f"“{lexicon.text_of(token)}”" for token in sorted(tokens))
    for name, words, part in (
        ("resting token", "any resting token", slice(None)),
        ("first resting token", "the text's first resting token", slice(0, 1)),
        ("second resting token", "the text's second resting token", slice(1, 2)),
    ):
        if len(keys):
            feature = Feature(name, f"{words} ({listed_tokens})", "lexical", tokens)
            yield after(feature, window, keys[part], itself=False)


def sentences(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The query's sentence and the one before, their first words, and any sentence's first."""
    sentence_of_token, words = window.sentence_of_token, window.words
    if not len(words):
        return
    query, key = lower(window)
    back = sentence_of_token[query] - sentence_of_token[key]
    for count, name in enumerate(("same sentence", "sentence before")):
        mask = back == count
        yield cells(Feature(name, f"the {name}", "syntactic"), query[mask], key[mask])
    starts = words.first[np.flatnonzero(np.diff(words.sentence, prepend=-1))]
    any_start = Feature("sentence start", "the first token of any sentence", "syntactic")
    yield after(any_start, window, starts)
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
        # from a word's last token to all tokens of another word that came before it, each once
        earlier = words.last[key] < words.last[query]
        query, key = query[earlier], key[earlier]
        pairs = distinct(span_pairs(words.last[query], words.first[key], words.last[key]))
        yield cells(Feature(f"tree {name}", meaning, "syntactic"), pairs.query, pairs.key)
    roots = Feature("key root", "any main word of a sentence", "syntactic")
    yield after(roots, window, words.last[head < 0])


def entities(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any mention; those of one entity are relations of the table."""
    if len(window.mentions):
        mention = Feature("key mention", "the head word of any mention", "coreference")
        yield after(mention, window, np.unique(window.mentions.last))
