"""Features of place alone: the first token, distances, what stands early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headscope.corpus.window import Window
from headscope.studies.explain.feature import Cells, Feature, Lexicon, cells, lower

OFFSETS = 10
FAR = ((11, 16), (17, 32), (33, 64), (65, None))
EARLY = 4
"""Tokens after the first that may be resting places wherever the query is."""
_NAMED = {0: "the token itself", 1: "the token before", 2: "the token before last"}

TOKEN_0 = Feature("token 0", "token 0", "sink")
LATER = Feature("token 0, later", "token 0 the more, the later it is", "sink")
EARLY_TOKENS = [Feature(f"early-{i}", f"the text's token {i}", "sink") for i in range(1, EARLY + 1)]
OFFSET = [
    Feature(f"offset-{d}", _NAMED.get(d, f"{d} tokens back"), "position")
    for d in range(OFFSETS + 1)
]
LOG_DISTANCE = Feature("log distance", "farther tokens (logarithm)", "position")
CURVE = Feature("log distance squared", "farther tokens (logarithm, squared)", "position")
DISTANCE = Feature("distance", "farther tokens", "position")
FAR_AWAY = [
    Feature(
        f"far {low}-{high or ''}",
        f"{low} {f'to {high}' if high else 'or more'} tokens back",
        "position",
    )
    for low, high in FAR
]
SMOOTH = frozenset({LATER.name, LOG_DISTANCE.name, CURVE.name, DISTANCE.name})
"""Features with other values than 0 and 1."""


def sinks(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Token 0 and the few after it, for every later query."""
    query = np.arange(1, len(window))
    zero = np.zeros_like(query)
    yield cells(TOKEN_0, query, zero)
    # more keys share a later query's attention: what it takes to hold token 0's share is ln q
    yield cells(LATER, query, zero, np.log(query))
    for place, feature in enumerate(EARLY_TOKENS, start=1):
        own = query[query > place]
        yield cells(feature, own, np.full_like(own, place))


def distances(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Single offsets, stretches of far ones, and smooth measures; token 0 is a sink, not far."""
    query, key = lower(len(window))
    seen = key > 0
    query, key = query[seen], key[seen]
    distance = query - key
    for d, feature in enumerate(OFFSET):
        own = distance == d
        yield cells(feature, query[own], key[own])
    for (low, high), feature in zip(FAR, FAR_AWAY, strict=True):
        own = (distance >= low) & (distance <= (high or len(window)))
        yield cells(feature, query[own], key[own])
    yield cells(LOG_DISTANCE, query, key, np.log1p(distance))
    yield cells(CURVE, query, key, np.log1p(distance) ** 2 / 4)
    yield cells(DISTANCE, query, key, distance / 64)


PLACES = (sinks, distances)
PLACE_RULE = (
    TOKEN_0,
    LATER,
    EARLY_TOKENS[0],
    LOG_DISTANCE,
    CURVE,
    DISTANCE,
    *OFFSET[:4],
)
"""What the rule of token 0 and distance alone is made of."""
