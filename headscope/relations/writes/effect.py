"""What an effect is: a question about what a head writes, not about where it looks.

An effect is (query, tokens, control tokens): the head's output there, through the last norm with
its scale frozen, onto the tokens' unembedding, less the same on the control tokens; in logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.relation import Rule

WRITES = "writes"
PROMPTS = "prompts"
"""The stimulus that is made for effects; no relation reads it."""
ELSEWHERE = "tokens that it looks at from elsewhere"
_NONE = np.empty(0, np.int64)
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


class Sides(NamedTuple):
    """What is compared at some queries."""

    targets: Tokens
    controls: Tokens
    second: Tokens | None = None
    """Control tokens of another kind."""


FindTokens = Callable[[Window, np.random.Generator], Sides]
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
    """One kind of write. Either `find` names the tokens, or a prompt, or each head's own look."""

    type: str
    name: str
    rule: Rule
    """Its floor is in logits or nats, and its meaning what the head does: "raises the token that
    it looks at"."""
    find: FindTokens | None = None
    looked: Looked | None = None
    prompt: str = ""
    """The kind of questions that ask for it; see `headscope.corpus.question.Question`."""
    stimuli: tuple[str, ...] = ("text",)
    sign: int = 1
    """−1 for a head that lowers what it is asked about."""
    second: str = ""
    """What the second control is, in words: "tokens that …"; empty where there is none."""
    moved: bool = False
    """Only what comes from other positions than the query's own counts: the head must move what it
    writes there, and not raise what earlier layers predict there already. Of an effect on scores
    only what it reads where the name stands that comes twice."""
    of_keys: bool = False
    """Asked of the scores of later heads' queries and not of logits; see
    `headscope.measure.turned`. Lifts and floor are in nats."""

    @property
    def unit(self) -> str:
        """Of its lifts and its floor."""
        return "nats" if self.of_keys else "logits"

    @property
    def id(self) -> str:
        """The effect's full name, e.g. `writes/copy/looked-at`; relations have no such name."""
        return f"{WRITES}/{self.type}/{self.name}"


def find_tokens(effect: Effect, window: Window, seed: Sequence[int]) -> Sides | None:
    """What an effect asks in a window, at queries that have all sides; None where it has none."""
    if window.stimulus not in effect.stimuli or effect.looked is not None or effect.of_keys:
        return None
    if effect.find is not None:
        found = effect.find(window, np.random.default_rng(seed))
    else:
        found = asked_in(window, effect.prompt)
    asked = np.intersect1d(found.targets.query, found.controls.query)
    if effect.second and found.second is not None:
        asked = np.intersect1d(asked, found.second.query)
    if not len(asked):
        return None
    second = found.second.of(asked) if effect.second and found.second is not None else None
    return Sides(found.targets.of(asked), found.controls.of(asked), second)


def asked_in(window: Window, kind: str) -> Sides:
    """What the questions of one kind ask, in a window that was made for them."""
    asked = [each for each in window.questions if each.kind == kind]

    def side(tokens: Sequence[Int[ndarray, " token"]]) -> Tokens:
        query = [np.full(len(own), each.query) for own, each in zip(tokens, asked, strict=True)]
        return Tokens(*(np.concatenate([_NONE, *each]) for each in (query, tokens)))

    return Sides(
        side([each.right for each in asked]),
        side([each.wrong for each in asked]),
        side([each.other for each in asked]),
    )


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
