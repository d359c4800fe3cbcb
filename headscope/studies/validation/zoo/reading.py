"""A window as the heads of the zoo see it, and their choice of words as rows of attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.corpus.window import Window, WordTable

Table = Bool[ndarray, "word word"]
"""Query words × key words."""
Weights = Float[ndarray, "word word"]
Rows = Float[ndarray, "query key"]
"""Attention over tokens: causal, each row sums to 1."""
Look = Callable[["Reading"], Rows]


@dataclass(frozen=True, eq=False)
class Reading:
    """A window with what many heads ask of it, each worked out once."""

    window: Window

    @property
    def words(self) -> WordTable:
        """The words of the window; none in random tokens."""
        return self.window.words

    @cached_property
    def earlier(self) -> Table:
        """Key words that have been read wholly before the query word begins."""
        return np.asarray(self.words.last[None, :] < self.words.first[:, None])

    @cached_property
    def same_sentence(self) -> Table:
        """Words of one sentence."""
        return np.asarray(self.words.sentence[:, None] == self.words.sentence[None, :])

    @cached_property
    def same_lemma(self) -> Table:
        """Forms of one word."""
        return np.asarray(self.words.lemma[:, None] == self.words.lemma[None, :])

    @cached_property
    def forms(self) -> list[str]:
        """The words as their tokens spell them."""
        spans = zip(self.words.first.tolist(), self.words.last.tolist(), strict=True)
        return ["".join(self.window.strings[a : b + 1]).strip() for a, b in spans]

    @cached_property
    def mentioned(self) -> Bool[ndarray, " word"]:
        """Words that head a mention, of whatever entity."""
        return np.isin(self.words.first, self.window.mentions.first)

    @cached_property
    def spread(self) -> Float[ndarray, "word token"]:
        """Each word's attention, even over its tokens."""
        token = np.arange(len(self.window))
        inside = (token >= self.words.first[:, None]) & (token <= self.words.last[:, None])
        return np.asarray(inside / inside.sum(1, keepdims=True), np.float32)

    @cached_property
    def even(self) -> Rows:
        """All keys up to the query alike."""
        size = len(self.window)
        return np.asarray(np.tri(size) / np.arange(1, size + 1)[:, None], np.float32)

    def rows(self, weights: Weights) -> Rows:
        """What a head does that gives words these weights, at each word's last token.

        It rests on the first token where it finds nothing, and where no word ends.
        """
        found = np.zeros((len(self.window),) * 2, np.float32)
        total = weights.sum(1)
        looking = total > 0
        share = (weights[looking] / total[looking, None]).astype(np.float32)
        found[self.words.last[looking]] = share @ self.spread
        found[found.sum(1) == 0, 0] = 1
        return found


def mixed(*parts: tuple[float, Look]) -> Look:
    """A head that divides its attention among several looks; the shares sum to 1."""
    return lambda reading: np.sum([share * look(reading) for share, look in parts], axis=0)


def at_rest(reading: Reading) -> Rows:
    """All attention on the first token."""
    found = np.zeros((len(reading.window),) * 2, np.float32)
    found[:, 0] = 1
    return found


def evenly(reading: Reading) -> Rows:
    """All keys up to the query alike."""
    return reading.even
