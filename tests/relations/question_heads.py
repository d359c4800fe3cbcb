"""Heads that look somewhere from a question's last token, and habits that any such text may meet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headscope.corpus.window import Window

Look = Callable[[Window], list[int]]
"""The keys that a head looks at from the question's last token."""


def look(window: Window, keys_of: Look, noise: float = 0.0) -> np.ndarray:
    """A head that looks where a function says, at a share of what it has, and evenly elsewhere."""
    n = len(window)
    a = np.zeros((n, n))
    a[:, 0] = 1
    for query in set(window.arrows.query.tolist()):
        a[query] = 0
        a[query, : query + 1] = noise / (query + 1)
        keys = keys_of(window)
        for key in keys:
            a[query, key] += (1 - noise) / len(keys)
    return a


def same_token(window: Window) -> list[int]:
    """The last earlier token that is the same, or else that of the token before, and so on."""
    query = int(window.arrows.query[0])
    for back in range(query):
        earlier = np.flatnonzero(window.tokens[: query - back] == window.tokens[query - back])
        if len(earlier):
            return [int(earlier[-1])]
    return [0]


def after_same_token(window: Window) -> list[int]:
    return [same_token(window)[0] + 1]
