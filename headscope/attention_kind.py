"""Kinds of attention: which keys a query may see, and what follows from that.

A window, a tokenizer's frame, a model and its engine carry a kind, which describes whatever differs
between a decoder and an encoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

UNLIMITED = int(np.iinfo(np.int64).max)
"""Tokens of a window whose length does not matter."""

Positions = Int[ndarray, "..."] | int


@dataclass(frozen=True)
class AttentionKind:
    """One kind of attention: the keys before some position of a window, which depends on the query.

    >>> CAUSAL.sees(np.array([2, 2]), np.array([1, 3])).tolist()
    [True, False]
    >>> BIDIRECTIONAL.sees(np.array([2, 2]), np.array([1, 3])).tolist()
    [True, True]
    """

    name: str
    sees_future: bool = False
    """True if a query sees keys after it: distances then count in both directions, and padding must
    be hidden from queries."""

    @property
    def predicts_next(self) -> bool:
        """True if a position can predict the token after it, which it has not seen."""
        return not self.sees_future

    def row_end(self, query: Positions, length: int) -> Int[ndarray, ...]:
        """The number of keys in each query's row: those before this position, and no others.

        Args:
            query: positions.
            length: of the window, in tokens.

        >>> CAUSAL.row_end(np.array([0, 2]), 4).tolist()
        [1, 3]
        >>> BIDIRECTIONAL.row_end(np.array([0, 2]), 4).tolist()
        [4, 4]
        """
        if self.sees_future:
            return np.full(np.shape(query), length)
        return np.asarray(query) + 1

    def sees(self, query: Positions, key: Positions) -> Bool[ndarray, ...]:
        """Mask of the pairs of positions whose key the query sees."""
        return np.asarray(key < self.row_end(query, UNLIMITED))

    def hidden(self, length: int) -> Bool[ndarray, "query key"]:
        """Mask of the cells of a whole pattern whose key the query does not see.

        >>> CAUSAL.hidden(2).tolist()
        [[False, True], [False, False]]
        """
        position = np.arange(length)
        return ~self.sees(position[:, None], position[None, :])

    def count_seen(
        self, pool: Int[ndarray, " key"], query: Int[ndarray, " query"]
    ) -> Int[ndarray, " query"]:
        """Number of positions of a sorted row that each query sees; these are the first of it.

        >>> CAUSAL.count_seen(np.array([2, 4, 20]), np.array([1, 4])).tolist()
        [0, 2]
        """
        return np.searchsorted(pool, self.row_end(query, UNLIMITED))

    def sees_apart(
        self,
        query: tuple[Int[ndarray, ...], Int[ndarray, ...]],
        key: tuple[Int[ndarray, ...], Int[ndarray, ...]],
    ) -> Bool[ndarray, ...]:
        """Mask of the pairs of spans of which the query sees all of the key, and no token is both.

        Args:
            query: first and last positions of the queries' spans.
            key: likewise of the keys'.
        """
        after = (key[0] > query[1]) & self.sees(query[1], key[1])
        return np.asarray((key[1] < query[0]) | after)


CAUSAL = AttentionKind("causal")
BIDIRECTIONAL = AttentionKind("bidirectional", sees_future=True)

KINDS = {kind.name: kind for kind in (BIDIRECTIONAL, CAUSAL)}
"""Every kind by name."""


def kind_of(attention_kind: AttentionKind | str) -> AttentionKind:
    """The kind of a name; a kind is that itself.

    >>> kind_of("bidirectional") is BIDIRECTIONAL
    True
    """
    return KINDS[attention_kind] if isinstance(attention_kind, str) else attention_kind


KindName = AttentionKind | Literal["bidirectional", "causal"]
