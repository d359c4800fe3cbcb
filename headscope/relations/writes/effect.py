"""What an effect is: a question about what a head writes, not about where it looks.

An effect is (query, tokens, control tokens): the head's output there, through the last norm with
its scale frozen, onto the tokens' unembedding, less the same on the control tokens; in logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.relation import Rule

WRITES = "writes"
LOOKED = 0.3
"""Least attention on one key for a head to look at it. Ours: below it a write is of several tokens,
and none of them can be held for its subject."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens that queries of a window are asked about; those of one query count alike."""

    query: Int[ndarray, " cell"]
    token: Int[ndarray, " cell"]
    """As the model numbers them; they need not stand in the window."""

    def __len__(self) -> int:
        return len(self.query)

    def of(self, queries: Int[ndarray, " query"]) -> Tokens:
        """Those of some queries."""
        kept = np.isin(self.query, queries)
        return Tokens(self.query[kept], self.token[kept])


FindTokens = Callable[[Window, np.random.Generator], tuple[Tokens, Tokens]]
"""The tokens that a head of this kind raises at some queries of a window, and control tokens."""


@dataclass(frozen=True)
class Looked:
    """Asks each head by itself: about the token that it looks at, wherever that is.

    Its queries are those whose strongest key, the first token left out, holds more than `least` of
    the head's attention; each distinct token of a text counts alike, however often it stands there.
    The control is the mean over all other tokens of the text; the second control is what the head
    does, at the same query, to a token that it looks at from another.
    """

    least: float = LOOKED
    predicted: bool = False
    """Only where the token is among the most likely of the text by the stream that the layer reads,
    unembedded (logit lens)."""


@dataclass(frozen=True, eq=False)
class Effect:
    """One kind of write. Either `find` names the tokens, or each head's own look does."""

    type: str
    name: str
    rule: Rule
    """Its floor is in logits, and its meaning what the head does: "raises the token that it looks
    at"."""
    find: FindTokens | None = None
    looked: Looked | None = None
    stimuli: tuple[str, ...] = ("text",)
    sign: int = 1
    """−1 for a head that lowers what it is asked about."""

    @property
    def id(self) -> str:
        """The effect's full name, e.g. `writes/copy/looked-at`; relations have no such name."""
        return f"{WRITES}/{self.type}/{self.name}"


def find_tokens(
    effect: Effect, window: Window, seed: Sequence[int]
) -> tuple[Tokens, Tokens] | None:
    """What an effect asks in a window, at queries that have both sides; None where it has none."""
    if effect.find is None or window.stimulus not in effect.stimuli:
        return None
    targets, controls = effect.find(window, np.random.default_rng(seed))
    both = np.intersect1d(targets.query, controls.query)
    return (targets.of(both), controls.of(both)) if len(both) else None


def other_tokens(
    window: Window, targets: Tokens, rng: np.random.Generator, *, draws: int = 8
) -> Tokens:
    """Random other tokens of the same text: a head that raises whatever stands there gains nothing.

    >>> window = Window("w", np.arange(5), ("",) * 5)
    >>> found = other_tokens(window, Tokens(np.array([4]), np.array([2])), np.random.default_rng(0))
    >>> set(found.token.tolist()) <= {1, 3, 4}
    True
    """
    query = np.repeat(np.unique(targets.query), draws)
    token = window.tokens[rng.integers(1, max(2, window.stop), len(query))]
    size = int(max(window.tokens.max(), targets.token.max(initial=0))) + 1
    free = ~np.isin(query * size + token, targets.query * size + targets.token)
    return Tokens(query[free], token[free])
