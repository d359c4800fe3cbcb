"""How control pairs are drawn: always so that a simpler habit hits them as often as the targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs, pairs, without

DRAWS = 4
"""Control cells tried per query or target: more would narrow the control's noise, which is
already far below the differences between documents."""


def other_keys(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, other keys: any position from 1 to the query that is no target.

    In an encoder any position of the text. A head that spreads its attention evenly gains nothing.
    The first token is left out: it is where heads rest, and so is what closes an encoder's text.

    >>> window = Window("w", np.arange(4), ("<s>", "a", "b", "c"))
    >>> targets = pairs(np.array([3]), np.array([2]))
    >>> drawn = other_keys(window, targets, np.random.default_rng(0))
    >>> set(drawn.query.tolist()) | set(drawn.key.tolist()) <= {1, 3}
    True
    """
    return _same_query(targets, np.arange(1, window.stop), rng, window.attention_kind)


def keys_from(
    pool: Int[ndarray, " position"],
    targets: Pairs,
    rng: np.random.Generator,
    *,
    attention_kind: AttentionKind = CAUSAL,
) -> Pairs:
    """Same query, keys from a sorted pool of positions; of a causal model strictly before it.

    >>> targets = pairs(np.array([9]), np.array([4]))
    >>> drawn = keys_from(np.array([2, 4, 20]), targets, np.random.default_rng(0))
    >>> set(drawn.key.tolist())
    {2}
    """
    return _same_query(targets, pool, rng, attention_kind, back=1)


def same_distance(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Other query, same distance and side: a head with a fixed offset gains nothing.

    >>> window = Window("w", np.arange(40), ("a",) * 40)
    >>> targets = pairs(np.array([30]), np.array([28]))
    >>> drawn = same_distance(window, targets, np.random.default_rng(0))
    >>> set((drawn.query - drawn.key).tolist()), set(drawn.owner.tolist())
    ({2}, {30})
    """
    distance = np.repeat(targets.query - targets.key, DRAWS)
    owner = np.repeat(targets.owner, DRAWS)
    back, ahead = np.maximum(distance, 0), np.maximum(-distance, 0)
    # the first query for which this distance does not reach the first token; ahead, the last for
    # which it does not reach what closes the text
    last = np.where(ahead > 0, window.stop - ahead, len(window)) - 1
    query = np.minimum(back + 1 + _below(last - back, rng), last)
    seen = window.attention_kind.sees(query, query - distance)
    query, distance, owner = query[seen], distance[seen], owner[seen]
    controls = pairs(query, query - distance, owner, attention_kind=window.attention_kind)
    return _no_targets(replace(controls, share=np.repeat(targets.share, DRAWS)[seen]), targets)


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
    owner, choices = owner[choices > 0], choices[choices > 0]
    key = pool[_below(choices, rng)]
    # a token stands against a token, of a word's several too
    tokens, words = np.bincount(targets.owner), np.bincount(targets.owner, targets.share)
    share = (words / tokens.clip(1))[owner]
    return _no_targets(
        replace(pairs(owner, key, attention_kind=attention_kind), share=share), targets
    )


def _below(bound: Int[ndarray, " draw"], rng: np.random.Generator) -> Int[ndarray, " draw"]:
    """A random integer in [0, bound) for each bound; 0 where the bound is below 1."""
    return np.asarray(rng.random(len(bound)) * np.maximum(bound, 1), np.int64)


def _no_targets(controls: Pairs, targets: Pairs) -> Pairs:
    """Leave out drawn cells that are targets themselves, and keys at the first token."""
    return without(controls.take(controls.key > 0), targets)
