"""Direct effects: relations whose cells are (query, token).

A cell's value is the head's output at the query, through the last norm with its scale frozen, onto
the token's unembedding, in logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs, no_pairs, pairs
from headscope.relations.relation import (
    MATCHED,
    SELF,
    DrawControl,
    EffectRule,
    FindPairs,
    PairSet,
    Relation,
    part_name,
)
from headscope.stimuli.prompts import PROMPTS

WRITES = "writes"
_NONE = np.empty(0, np.int64)
MIN_ATTENTION = 0.3
"""Least attention on one key for a head to look at it. Ours: below it a write is of several tokens,
and none of them can be held for its subject."""


@dataclass(frozen=True)
class TopKeyCondition:
    """Asks each head by itself: about the token that it looks at, wherever that is.

    Its queries are those whose strongest key, the first token left out, holds more than
    `MIN_ATTENTION` of the head's attention; each distinct token of a text counts alike, however
    often it stands there. The control is the mean over all other tokens of the text; the second
    control is what the head does, at the same query, to a token that it looks at from another.
    """

    predicted: bool = False
    """Only where the token is among the most likely of the text by the stream that the layer reads,
    unembedded (logit lens)."""


def no_tokens(window: Window, *drawn_from: object) -> Pairs:
    """No token: an effect on the token that each head attends to most."""
    return no_pairs()


@dataclass(frozen=True)
class Effect(Relation):
    """A relation of what a head writes.

    `pairs` finds the target tokens of a window, as pairs of a query and a token as the model
    numbers it, which need not stand in the window; `control` and `matched` draw control tokens of
    two kinds. The tokens of one query count alike. Its meaning is what the head does: "raises the
    token that it looks at".
    """

    pairs: FindPairs = field(default=no_tokens)
    control: DrawControl = field(default=no_tokens)
    rule: EffectRule = field(kw_only=True)
    top_key: TopKeyCondition | None = None
    prompt: str = ""
    """The kind of questions that ask for it; see `headscope.corpus.window.Question`."""
    moved: bool = False
    """Only what comes from other positions than the query's own counts: the head must move what it
    writes there, and not raise what earlier layers predict there already."""

    def __post_init__(self) -> None:
        """Leaves the functions as they are: their cells are no positions of a window."""

    @property
    def id(self) -> str:
        """The effect's full name, e.g. `writes/copy/looked-at`; relations have no such name."""
        return f"{WRITES}/{self.type}/{self.name}"

    @property
    def sign(self) -> int:
        """The side of 0 on which its lift must lie."""
        return self.rule.sign

    def cells_in(self, window: Window, seed: Sequence[int]) -> PairSet | None:
        """Tokens of the effect in a window of its stimuli, at queries that have all sides."""
        targets = self.pairs(window)
        if not len(targets):
            return None
        rng = np.random.default_rng(seed)
        controls = [draw(window, targets, rng) for draw in (self.control, self.matched) if draw]
        sides = (targets, *controls)
        queries = reduce(np.intersect1d, [side.query for side in sides])
        if not len(queries):
            return None
        return PairSet(*(side.where(np.isin(side.query, queries)) for side in sides))

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that are summed beside it."""
        return (MATCHED,) * bool(self.rule.second) + (SELF,) * self.moved


def prompt_effect(
    type: str,
    name: str,
    rule: EffectRule,
    *,
    prompt: str,
    moved: bool = True,
) -> Effect:
    """An effect that questions of one kind ask for: right tokens against wrong ones and others."""
    right, wrong, other = (
        partial(prompt_tokens, kind=prompt, side=side) for side in ("right", "wrong", "other")
    )
    return Effect(
        type,
        name,
        right,
        wrong,
        stimuli=(PROMPTS.name,),
        matched=other if rule.second else None,
        rule=rule,
        prompt=prompt,
        moved=moved,
    )


def prompt_tokens(window: Window, *drawn_from: object, kind: str, side: str) -> Pairs:
    """The `right`, `wrong` or `other` tokens of questions of one kind, at each question's query."""
    questions = [question for question in window.questions if question.kind == kind]
    tokens = [getattr(question, side) for question in questions]
    counts = [len(ids) for ids in tokens]
    query = np.repeat(np.array([question.query for question in questions], np.int64), counts)
    return token_pairs(query, np.concatenate([_NONE, *tokens]))


def token_pairs(query: Int[ndarray, " cell"], token: Int[ndarray, " cell"]) -> Pairs:
    """Cells (query, token)."""
    # tokens are no positions: none of them is after a query
    return pairs(query, token, attention_kind=BIDIRECTIONAL)


def effects_among(relations: Sequence[Relation]) -> list[Effect]:
    """Relations whose cells are logits."""
    return [relation for relation in relations if isinstance(relation, Effect)]


def of_attention(relations: Sequence[Relation]) -> list[Relation]:
    """Relations whose cells are attention."""
    return [relation for relation in relations if not isinstance(relation, Effect)]


def sum_names(relations: Sequence[Relation]) -> tuple[str, ...]:
    """The names under which relations are summed: effects and their parts behind the others."""
    effects = effects_among(relations)
    parts = [
        part_name(effect.id, part)
        for part in (MATCHED, SELF)
        for effect in effects
        if part in effect.parts
    ]
    return (*(relation.id for relation in (*of_attention(relations), *effects)), *parts)


def other_tokens(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Random other tokens of the same text."""
    query = np.repeat(np.unique(targets.query), 8)
    token = window.tokens[rng.integers(1, max(2, window.stop), len(query))]
    size = int(max(window.tokens.max(), targets.key.max(initial=0))) + 1
    free = ~np.isin(query * size + token, targets.query * size + targets.key)
    return token_pairs(query[free], token[free])
