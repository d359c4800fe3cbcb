"""One thing that a rule can weigh, and where it holds in a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window

KINDS = (
    "sink",
    "position",
    "delimiter",
    "lexical",
    "induction",
    "syntactic",
    "coreference",
    "semantic",
)
"""What attention goes by, in the order of the coverage bar; a type of one's own comes after."""
_CONTINUES = "##"
"""What WordPiece writes before a piece that begins no word (Devlin et al. 2019)."""
COMMON = 48
"""Tokens that have a feature of their own: the most frequent ones of the text that is fitted."""


@dataclass(frozen=True)
class Feature:
    """One thing that a rule can weigh."""

    name: str
    """Short, for tables: `offset-1`, `key NOUN`, `syntactic/obj:dep>head`."""
    words: str
    """What its keys are, for sentences: "the token before"."""
    kind: str
    """What attention on it counts as: one of `KINDS`, or a head type of one's own."""
    tokens: frozenset[int] = frozenset()
    """Which tokens its keys are, where it asks for tokens and nothing else."""


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """The cells of one feature in one window, no cell twice; elsewhere it is 0."""

    feature: Feature
    query: Int[ndarray, " cell"]
    key: Int[ndarray, " cell"]
    value: Float[ndarray, " cell"]


@dataclass(frozen=True, eq=False)
class TokenFacts:
    """Facts on tokens before a rule is fitted: their counts in the text that is fitted, and on
    which of them the model's layers rest there.
    """

    counts: dict[int, int]
    strings: dict[int, str]
    resting: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """The tokens of resting columns, by layer; see `resting_tokens`."""

    @classmethod
    def of(
        cls, windows: Sequence[Window], resting: Mapping[int, frozenset[int]] | None = None
    ) -> TokenFacts:
        """Count the tokens of windows, without those that begin and close them."""
        counts = Counter(int(t) for window in windows for t in window.tokens[1 : window.stop])
        strings = {
            int(token): text
            for window in windows
            for token, text in zip(window.tokens, window.strings, strict=True)
        }
        return cls(dict(counts), strings, resting or {})

    def text_of(self, token: int) -> str:
        """A token in words: `the`, `…ing` for what begins no word, `⏎`, `space`.

        >>> TokenFacts({}, {5: " the"}).text_of(5)
        'the'
        """
        string = self.strings[token]
        text = (string.strip(" ") or "space").replace("\n", "⏎")
        if self.writes_blanks:
            begins = string.startswith(" ") or not is_word(string)
        else:
            begins = not text.startswith(_CONTINUES) or text == _CONTINUES
        return text if begins else f"…{text.removeprefix(_CONTINUES)}"

    @cached_property
    def writes_blanks(self) -> bool:
        """True where tokens hold the blank before a word; False where pieces within one are marked
        instead, as WordPiece does.
        """
        return not any(text.startswith(_CONTINUES) for text in self.strings.values())

    @property
    def common(self) -> list[int]:
        """The tokens that have a feature of their own, the most frequent first."""
        order = sorted(self.counts, key=lambda token: (-self.counts[token], token))
        return order[:COMMON]


def is_word(text: str) -> bool:
    """Tells whether a token is more than marks and spaces.

    >>> is_word(" the"), is_word(","), is_word(" ")
    (True, False, False)
    """
    return any(char.isalnum() for char in text)


def kind_in(feature: Feature, resting: frozenset[int]) -> str:
    """The kind that attention on a feature counts as in a layer that rests on these tokens.

    >>> the = Feature("token 5 the", "“the”", "lexical", frozenset({5}))
    >>> kind_in(the, frozenset({5, 9})), kind_in(the, frozenset())
    ('sink', 'lexical')
    """
    return "sink" if feature.tokens & resting else feature.kind


def cells(
    feature: Feature, query: ndarray, key: ndarray | int, value: ndarray | None = None
) -> FeatureCells:
    """Cells of value 1 unless said otherwise."""
    query, key = np.broadcast_arrays(query, key)
    return FeatureCells(feature, query, key, np.ones(len(query)) if value is None else value)


def all_seen(
    feature: Feature, window: Window, keys: Int[ndarray, " key"], *, itself: bool = True
) -> FeatureCells:
    """The cells of every query with all of these keys that it sees."""
    position = np.arange(len(window))[:, None]
    seen = window.attention_kind.sees(position, keys[None, :])
    query, column = np.nonzero(seen if itself else seen & (position != keys[None, :]))
    return cells(feature, query, keys[column])


def seen_cells(window: Window) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of all cells that a head sees, row by row, the sinks left out: token 0, and
    what closes the window of an encoder.
    """
    query, key = np.nonzero(~window.attention_kind.hidden(len(window)))
    is_sink = (key == 0) | (window.attention_kind.sees_future & (key == window.closing))
    return query[~is_sink], key[~is_sink]
