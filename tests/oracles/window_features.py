"""A window as the benchmark's heads see it, and their choice of words as rows of attention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable, no_mentions
from headscope.relations.baselines import mirror_words

Table = Bool[ndarray, "word word"]
"""Query words × key words."""
Weights = Float[ndarray, "word word"]
Rows = Float[ndarray, "query key"]
"""Attention over tokens that the query sees; each row sums to 1."""
AttentionRule = Callable[["WindowFeatures"], Rows]


TAIL, FIRST_TOKEN = 2.5, (0.0, 0.3)
"""Spread of a real head's logits, and the shares of its attention on the first token."""


@dataclass(frozen=True, eq=False)
class WindowFeatures:
    """A window with what many heads ask of it, each worked out once."""

    window: Window
    original: WindowFeatures | None = None
    """The window in the order of the text, if this one is read from its end."""

    @cached_property
    def mirrored(self) -> WindowFeatures:
        """The window read from its end: the next verb is the nearest one before."""
        window = self.window
        words = mirror_words(window.words, len(window) - 1)
        tokens, strings = window.tokens[::-1], window.strings[::-1]
        mirror = replace(
            window, tokens=tokens, strings=strings, words=words, mentions=no_mentions()
        )
        return WindowFeatures(mirror, original=self)

    @property
    def words(self) -> WordTable:
        """The words of the window; none in random tokens."""
        return self.window.words

    @cached_property
    def earlier(self) -> Table:
        """Key words that have been read wholly before the query word begins."""
        return np.asarray(self.words.last[None, :] < self.words.first[:, None])

    @cached_property
    def seen(self) -> Table:
        """Key words that the query sees and shares no token with: earlier ones, or all others."""
        words = self.words
        query, key = (words.first[:, None], words.last[:, None]), (words.first, words.last)
        return np.asarray(self.window.attention_kind.sees_apart(query, key))

    def is_of(self, *classes: str) -> Bool[ndarray, " word"]:
        """Words of some parts of speech."""
        if classes not in self._masks:
            self._masks[classes] = np.isin(self.words.upos, classes)
        return self._masks[classes]

    @cached_property
    def _masks(self) -> dict[tuple[str, ...], Bool[ndarray, " word"]]:
        return {}

    @property
    def position(self) -> Int[ndarray, " word"]:
        """Numbers of the words."""
        return np.arange(len(self.words))

    @cached_property
    def sentences_back(self) -> Int[ndarray, "word word"]:
        """Sentences from the key word to the query word; 0 within one."""
        return np.asarray(self.words.sentence[:, None] - self.words.sentence[None, :])

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
        if self.original is not None:
            return self.original.mentioned[::-1]
        return np.isin(self.words.first, self.window.mentions.first)

    @cached_property
    def spread(self) -> Float[ndarray, "word token"]:
        """Each word's attention, even over its tokens."""
        token = np.arange(len(self.window))
        inside = (token >= self.words.first[:, None]) & (token <= self.words.last[:, None])
        return np.asarray(inside / inside.sum(1, keepdims=True), np.float32)

    @cached_property
    def back(self) -> Int[ndarray, "query key"]:
        """Tokens from the key to the query; below 0 for later keys."""
        token = np.arange(len(self.window))
        return np.asarray(token[:, None] - token[None, :])

    @cached_property
    def same_token(self) -> Bool[ndarray, "query key"]:
        """Earlier occurrences of the query's own token, but for the first of the text."""
        tokens = self.window.tokens
        same = tokens[:, None] == tokens[None, :]
        return np.asarray(same & (self.back > 0) & self.proper)

    @property
    def proper(self) -> Bool[ndarray, " key"]:
        """Tokens of the text, without the first token."""
        proper = np.arange(len(self.window)) > 0
        return proper if self.original is None else proper[::-1]

    @cached_property
    def even(self) -> Rows:
        """All keys that a query sees alike."""
        return self.token_rows(~self.window.attention_kind.hidden(len(self.window)))

    def rows(self, weights: Weights | Table) -> Rows:
        """The pattern of a head that gives words these weights, at each word's last token.

        It attends to the first token if it finds nothing, and where no word ends.
        """
        if self.original is not None:
            return self.original.rows(weights[::-1, ::-1])
        pattern = np.zeros((len(self.window),) * 2, np.float32)
        total = weights.sum(1)
        looking = total > 0
        share = (weights[looking] / total[looking, None]).astype(np.float32)
        pattern[self.words.last[looking]] = share @ self.spread
        return _rest_elsewhere(pattern)

    def token_rows(self, weights: ndarray) -> Rows:
        """The pattern of a head that gives tokens these weights, and rests where none has any."""
        if self.original is not None:
            return self.original.token_rows(weights[::-1, ::-1])
        total = np.asarray(weights, float).sum(1, keepdims=True)
        share = np.divide(weights, total, where=total > 0, out=np.zeros(weights.shape))
        return _rest_elsewhere(np.asarray(share, np.float32))


def mixed(*parts: tuple[float, AttentionRule]) -> AttentionRule:
    """A head that divides its attention among several rules; the shares sum to 1."""
    return lambda reading: np.sum([share * rule(reading) for share, rule in parts], axis=0)


def mirrored(rule: AttentionRule) -> AttentionRule:
    """The same head of a text that is read from its end."""
    return lambda reading: rule(reading.mirrored)


def on_either_side(rule: AttentionRule) -> AttentionRule:
    """The nearer of what a head and its mirror image look at most."""

    def rows(reading: WindowFeatures) -> Rows:
        sides = rule(reading), rule(reading.mirrored)
        query = np.arange(len(reading.window))
        strongest = [side.argmax(1) for side in sides]
        far = [np.where(key > 0, np.abs(key - query), len(query)) for key in strongest]
        return np.where((far[0] <= far[1])[:, None], *sides)

    return rows


def spread_rows(window: Window, rng: np.random.Generator) -> Rows:
    """A pattern as a real head's: much on the first token, more on near ones, and a heavy tail."""
    token = np.arange(len(window))
    logits = TAIL * rng.standard_normal((len(window),) * 2, np.float32)
    weights = np.exp(logits) / (1 + np.abs(token[:, None] - token[None, :]))
    weights[window.attention_kind.hidden(len(window))] = 0
    share = rng.uniform(*FIRST_TOKEN)
    rows = (1 - share) * weights / weights.sum(1, keepdims=True)
    rows[:, 0] += share
    return np.asarray(rows, np.float32)


def at_rest(reading: WindowFeatures) -> Rows:
    """All attention on the first token."""
    return _rest_elsewhere(np.zeros((len(reading.window),) * 2, np.float32))


def _rest_elsewhere(pattern: Rows) -> Rows:
    pattern[pattern.sum(1) == 0, 0] = 1
    return pattern
