"""Long windows: queries at which a relation is measured.

In a window longer than `LONG` tokens, frequent relations are measured at `ROWS` queries. They are
drawn at random, seeded by the text of the window. A whole row of attention for each
query would cost more than reading the text. Rare relations are read at all of their queries.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs

LONG = 512
"""Length in tokens up to which every relation is measured at all of its queries."""
ROWS = 256
"""Queries of a longer window whose whole rows are read."""
FREQUENT = 8
"""A relation with queries at more than one token of so many is frequent …"""
FREQUENT_PAIRS = 2
"""… and so is one with a pair for every so many tokens."""


def turns(window: Window) -> Int[ndarray, " position"]:
    """Each query's place in a random order that is the window's own; the first token is last.

    >>> order = turns(Window("w", np.arange(4), ("a",) * 4))
    >>> sorted(order.tolist()), int(order[0])
    ([0, 1, 2, 3], 3)
    """
    return window.once(_turns)


def _turns(window: Window) -> Int[ndarray, " position"]:
    content = np.asarray(window.tokens, np.int64).tobytes()
    digest = hashlib.blake2b(content, digest_size=8).digest()
    seed = int.from_bytes(digest)
    rng = np.random.default_rng(seed)
    order = rng.permutation(np.arange(1, len(window)))
    last_turn = len(order)
    turn = np.full(len(window), last_turn)
    turn[order] = np.arange(last_turn)
    return turn


def row_queries(window: Window) -> Int[ndarray, " query"]:
    """The queries whose whole rows are read: all of a short window, `ROWS` of a long one."""
    if len(window) <= LONG:
        return np.arange(len(window))
    return np.flatnonzero(turns(window) < ROWS)


def queries_in_turn(window: Window, targets: Pairs) -> Pairs:
    """Targets of the measured queries; those of a frequent relation in a long window are a sample.

    The sample depends on no attention, so that a mean over it is an unbiased estimate of the mean
    over the window's queries.
    """
    if len(window) <= LONG:
        return targets
    has_few_pairs = len(targets) * FREQUENT_PAIRS <= len(window)
    has_few_queries = len(targets.queries) * FREQUENT <= len(window)
    if has_few_pairs and has_few_queries:
        return targets
    in_sample = turns(window) < ROWS
    return targets.where(in_sample[targets.owner])
