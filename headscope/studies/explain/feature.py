"""Features that a model can weigh, and helpers that list the cells where one holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window

_CONTINUES = "##"
"""WordPiece's prefix of a piece that begins no word (Devlin et al. 2019)."""
COMMON = 48
"""Number of the most frequent tokens that have a feature each."""


@dataclass(frozen=True)
class Feature:
    """A function of query and key that a model can weigh."""

    name: str
    """Name in feature_model.csv: `offset-1`, `key NOUN`, `syntactic/obj:dep>head`."""
    kind: str
    """Type that attention on it counts as: `sink`, `position` or a head type."""


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """Cells of one feature in one window, each once; the feature is 0 elsewhere."""

    feature: Feature
    query: Int[ndarray, " cell"]
    key: Int[ndarray, " cell"]
    value: Float[ndarray, " cell"]


@dataclass(frozen=True, eq=False)
class TokenFacts:
    """Counts and texts of the tokens of the fitting windows."""

    counts: dict[int, int]
    strings: dict[int, str]

    @classmethod
    def of(cls, windows: Sequence[Window]) -> TokenFacts:
        """Count the tokens of windows, without the first and the closing ones."""
        counts: Counter[int] = Counter()
        strings: dict[int, str] = {}
        for window in windows:
            tokens = window.tokens.tolist()
            counts.update(tokens[1 : window.stop])
            strings.update(zip(tokens, window.strings, strict=True))
        return cls(counts=dict(counts), strings=strings)

    def text_of(self, token: int) -> str:
        """A token for people: `the`, `…ing` if it begins no word, `⏎`, `space`.

        >>> TokenFacts({}, {5: " the"}).text_of(5)
        'the'
        """
        string = self.strings[token]
        text = string.strip(" ") or "space"
        text = text.replace("\n", "⏎")
        is_word_piece = any(other.startswith(_CONTINUES) for other in self.strings.values())
        if is_word_piece:
            begins = not text.startswith(_CONTINUES) or text == _CONTINUES
        else:
            begins = string.startswith(" ") or not is_word(string)
        return text if begins else f"…{text.removeprefix(_CONTINUES)}"

    @property
    def common(self) -> list[int]:
        """The `COMMON` most frequent tokens, the most frequent first."""
        order = sorted(self.counts, key=lambda token: (-self.counts[token], token))
        return order[:COMMON]


def is_word(text: str) -> bool:
    """Test whether a token has a letter or a digit.

    >>> is_word(" the"), is_word(","), is_word(" ")
    (True, False, False)
    """
    return any(char.isalnum() for char in text)


def cells(
    feature: Feature, query: ndarray, key: ndarray | int, value: ndarray | None = None
) -> FeatureCells:
    """Cells of a feature, of value 1 by default."""
    query, key = np.broadcast_arrays(query, key)
    if value is None:
        value = np.ones(len(query))
    return FeatureCells(feature=feature, query=query, key=key, value=value)


def all_seen(
    feature: Feature, window: Window, keys: Int[ndarray, " key"], *, itself: bool = True
) -> FeatureCells:
    """Cells of every query with all of these keys that it sees."""
    query_column = np.arange(len(window))[:, None]
    key_row = keys[None, :]
    is_seen = window.attention_kind.sees(query_column, key_row)
    if not itself:
        is_seen = is_seen & (query_column != key_row)
    query, column = np.nonzero(is_seen)
    return cells(feature, query, keys[column])


def seen_cells(window: Window) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of all visible cells, row by row, without token 0 and a closing token."""
    is_seen = ~window.attention_kind.hidden(len(window))
    query, key = np.nonzero(is_seen)
    is_sink = key == 0
    if window.attention_kind.sees_future:
        is_sink |= key == window.closing
    return query[~is_sink], key[~is_sink]
