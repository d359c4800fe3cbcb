"""Habits of tokens: they need no words, so that random tokens show them too."""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from headscope.studies.validation.zoo.reading import Look, Reading, Rows

FADE = 4.0
"""Tokens over which attention that fades falls to 1/e."""


def offset(distance: int) -> Look:
    """Always so many tokens back."""

    def look(reading: Reading) -> Rows:
        size = len(reading.window)
        rows = np.eye(size, k=-distance, dtype=np.float32)
        rows[: distance + 1] = 0
        return _resting(rows)

    return look


def recent(reading: Reading) -> Rows:
    """All tokens, near ones more."""
    place = np.arange(len(reading.window))
    return _shared(np.tril(np.exp(np.minimum(place[None, :] - place[:, None], 0) / FADE)))


def sentence_so_far(reading: Reading) -> Rows:
    """All tokens of the sentence up to the query alike."""
    sentence = reading.window.sentence_of_token
    return _shared(np.tril(sentence[:, None] == sentence[None, :]).astype(float))


def same_token(reading: Reading) -> Rows:
    """The last occurrence of the query's own token."""
    return _shared(_last(_same(reading)))


def every_same_token(reading: Reading) -> Rows:
    """All earlier occurrences of the query's own token alike."""
    return _shared(_same(reading).astype(float))


def follower(reading: Reading) -> Rows:
    """The token after the last occurrence of the query's own: induction."""
    moved = np.roll(_same(reading), 1, axis=1)
    moved[:, 0] = False
    return _shared(_last(np.tril(moved, k=-1)))


def current(reading: Reading) -> Rows:
    """The token itself."""
    return np.eye(len(reading.window), dtype=np.float32)


def second(reading: Reading) -> Rows:
    """The first token of the text proper."""
    rows = np.zeros((len(reading.window),) * 2, np.float32)
    rows[1:, 1:2] = 1
    return _resting(rows)


def line_breaks(reading: Reading) -> Rows:
    """All earlier tokens that break a line."""
    breaks = np.array(["\n" in token for token in reading.window.strings], float)
    return _shared(np.tril(np.tile(breaks, (len(breaks), 1)), k=-1))


def _same(reading: Reading) -> ndarray:
    tokens = reading.window.tokens
    same = np.tril(tokens[:, None] == tokens[None, :], k=-1)
    same[:, 0] = False
    return np.asarray(same)


def _last(table: ndarray) -> ndarray:
    return np.asarray(table & (table[:, ::-1].cumsum(1)[:, ::-1] == 1), float)


def _shared(weights: ndarray) -> Rows:
    total = weights.sum(1, keepdims=True)
    return _resting(np.divide(weights, total, where=total > 0, out=np.zeros(weights.shape)))


def _resting(rows: ndarray) -> Rows:
    found = np.asarray(rows, np.float32)
    found[found.sum(1) == 0, 0] = 1
    return found
