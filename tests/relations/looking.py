"""Heads made of a rule: each looks at one key, of what stands in a window or of its arrows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headscope.corpus.window import Window

Look = Callable[[Window], dict[int, int]]
"""The key of each query that a head looks at; elsewhere it rests on the first token."""


def pattern(window: Window, look: Look, share: float = 1.0) -> np.ndarray:
    """Attention of shape query × key: a share of it as the rule says, the rest evenly before."""
    rows = np.tril(np.ones((len(window), len(window)), np.float32))
    rows *= (1 - share) / rows.sum(1, keepdims=True)
    found = look(window)
    for query in range(len(window)):
        rows[query, found.get(query, 0)] += share
    return rows


def knows(kind: str) -> Look:
    """What is right."""

    def look(window: Window) -> dict[int, int]:
        own = window.arrows
        kept = (own.kind == kind) & own.right
        return dict(zip(own.query[kept].tolist(), own.last[kept].tolist(), strict=True))

    return look


def candidate(kind: str, number: int) -> Look:
    """A candidate by its place, right or wrong: 0 is the first, −1 the nearest.

    Where there are fewer, the farthest that there is on that way.
    """

    def look(window: Window) -> dict[int, int]:
        own, found = window.arrows, {}
        for query in set(own.query[own.kind == kind].tolist()):
            keys = sorted({*own.last[(own.kind == kind) & (own.query == query)].tolist()})
            found[query] = keys[max(-len(keys), min(number, len(keys) - 1))]
        return found

    return look


def same_word(number: int) -> Look:
    """An earlier place of the same word: 0 is the first, 1 the second, −1 the nearest."""

    def look(window: Window) -> dict[int, int]:
        seen: dict[str, list[int]] = {}
        found = {}
        rows = zip(window.words.last.tolist(), window.words.lemma.tolist(), strict=True)
        for last, form in rows:
            places = seen.setdefault(form, [])
            if -len(places) <= number < len(places):
                found[last] = places[number]
            places.append(last)
        return found

    return look


def words_back(words: int) -> Look:
    """The last token of the word so many words back."""

    def look(window: Window) -> dict[int, int]:
        last = window.words.last.tolist()
        return dict(zip(last[words:], last[:-words], strict=True))

    return look
