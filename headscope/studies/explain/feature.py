"""One thing that a rule can weigh, and where it holds in a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
class Cells:
    """The cells of one feature in one window, no cell twice; elsewhere it is 0."""

    feature: Feature
    query: Int[ndarray, " cell"]
    key: Int[ndarray, " cell"]
    value: Float[ndarray, " cell"]


def cells(feature: Feature, query: ndarray, key: ndarray, value: ndarray | None = None) -> Cells:
    """Cells of value 1 unless said otherwise; keys after the query are left out."""
    back = key <= query
    value = np.ones(len(query)) if value is None else value
    return Cells(feature, query[back], key[back], value[back])


@dataclass(frozen=True, eq=False)
class Lexicon:
    """What is known of tokens before a rule is fitted: their counts in the text that is fitted,
    and on which of them the model's layers rest there.
    """

    counts: dict[int, int]
    strings: dict[int, str]
    resting: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """The tokens of resting columns, by layer; see `resting_tokens`."""

    @classmethod
    def of(
        cls, windows: Sequence[Window], resting: Mapping[int, frozenset[int]] | None = None
    ) -> Lexicon:
        """Count the tokens of windows, their beginning-of-text tokens left out."""
        counts = Counter(int(token) for window in windows for token in window.tokens[1:])
        strings = {
            int(token): text
            for window in windows
            for token, text in zip(window.tokens, window.strings, strict=True)
        }
        return cls(dict(counts), strings, resting or {})

    def shown(self, token: int) -> str:
        """A token in words: `the`, `…ing` for what begins no word, `⏎`, `space`.

        >>> Lexicon({}, {5: " the"}).shown(5)
        'the'
        """
        own = self.strings[token]
        text = (own.strip(" ") or "space").replace("\n", "⏎")
        begins = own.startswith(" ") or not is_word(own)
        return text if begins else f"…{text}"

    @property
    def common(self) -> list[int]:
        """The tokens that have a feature of their own, the most frequent first."""
        order = sorted(self.counts, key=lambda token: (-self.counts[token], token))
        return order[:COMMON]


def is_word(text: str) -> bool:
    """Whether a token is more than marks and spaces.

    >>> is_word(" the"), is_word(","), is_word(" ")
    (True, False, False)
    """
    return any(char.isalnum() for char in text)


def kind_in(feature: Feature, resting: frozenset[int]) -> str:
    """What attention on a feature counts as in a layer that rests on these tokens.

    >>> the = Feature("token 5 the", "“the”", "lexical", frozenset({5}))
    >>> kind_in(the, frozenset({5, 9})), kind_in(the, frozenset())
    ('sink', 'lexical')
    """
    return "sink" if feature.tokens & resting else feature.kind


Family = Callable[[Window, Lexicon], Iterator[Cells]]


def lower(length: int) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of all cells that a causal head sees, row by row.

    >>> [each.tolist() for each in lower(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    query, key = np.tril_indices(length)
    return query, key


def after(
    length: int, keys: Int[ndarray, " key"], *, itself: bool = True
) -> tuple[ndarray, ndarray]:
    """Every query with all of these keys that do not come after it."""
    query, column = np.nonzero(np.arange(length)[:, None] >= keys[None, :] + (not itself))
    return query, keys[column]
