"""Direct effects: relations whose cells are (query, token), and their table.

A cell's value is the head's output at the query, through the last norm with its scale frozen, onto
the token's unembedding, in logits. Each effect has controls against heads that raise or lower other
tokens.
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
from headscope.relations import types_on_request
from headscope.relations.head_type import ALL
from headscope.relations.pairs import Pairs, in_second_copy, no_pairs, pairs
from headscope.relations.parts import MATCHED_CONTROL, SELF, part_name
from headscope.relations.relation import DrawControl, FindPairs, PairSet, Relation, Threshold
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.prompts import PROMPTS
from headscope.stimuli.repeat import REPEAT

WRITES = "writes"
NEXT = 4
"""Tokens after the target that induction is compared with."""
_NONE = np.empty(0, np.int64)
MIN_ATTENTION = 0.3
"""Least attention on one key for a head to look at it. Ours: below it an effect is of several
tokens, and none of them can be held for its subject."""


@dataclass(frozen=True)
class TopKeyCondition:
    """Queries of each head: the token that the head attends to most.

    Its queries are those whose strongest key, the first token left out, holds more than
    `MIN_ATTENTION` of the head's attention; each distinct token of a text counts alike, however
    often it stands there. The control is the mean over all other tokens of the text; the matched
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
    """A direct effect of a head on the logits of tokens.

    `pairs` finds the target tokens of a window, as pairs of a query and a token as the model
    numbers it, which need not stand in the window; `control` and `matched_control` draw control
    tokens of two kinds. The tokens of one query count alike. Its meaning is what the head does:
    "raises the token that it attends to".
    """

    pairs: FindPairs = field(default=no_tokens)
    control: DrawControl = field(default=no_tokens)
    thresholds: Threshold = field(kw_only=True)
    second: str = ""
    """Matched control in words: "tokens that …"; empty if absent."""
    top_key: TopKeyCondition | None = None
    prompt: str = ""
    """The kind of questions that ask for it; see `headscope.corpus.window.Question`."""
    moved: bool = False
    """Only what comes from other positions than the query's own counts: the head must move what it
    writes there, and not raise what earlier layers predict there already."""

    def __post_init__(self) -> None:
        """Leave the functions unchanged: their cells are not positions of a window."""

    @property
    def id(self) -> str:
        """The effect's full name, e.g. `writes/copy/looked-at`; relations have no such name."""
        return f"{WRITES}/{self.type}/{self.name}"

    def targets_in(self, window_pairs: WindowPairs) -> Pairs:
        """Target tokens in a window."""
        return self.pairs(window_pairs.window)

    def cells_in(self, window_pairs: WindowPairs, seed: Sequence[int]) -> PairSet | None:
        """Tokens of the effect in a window of its stimuli, at queries that have all sides."""
        window = window_pairs.window
        targets = window_pairs.targets(self)
        if not len(targets):
            return None
        rng = np.random.default_rng(seed)
        # an effect is a difference, so that a query counts only where every side of it has a token
        sides = [targets, self.control(window, targets, rng)]
        if self.matched_control is not None:
            sides.append(self.matched_control(window, targets, rng))
        queries = reduce(np.intersect1d, [side.query for side in sides])
        if not len(queries):
            return None
        return PairSet(*(side.where(np.isin(side.query, queries)) for side in sides))

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that are summed with it."""
        parts = []
        if self.second:
            parts.append(MATCHED_CONTROL)
        if self.moved:
            parts.append(SELF)
        return tuple(parts)


def prompt_effect(
    type: str,
    name: str,
    thresholds: Threshold,
    *,
    prompt: str,
    second: str = "",
    moved: bool = True,
) -> Effect:
    """An effect that questions of one kind ask for: right tokens against wrong ones and others."""
    tokens = partial(prompt_tokens, kind=prompt)
    return Effect(
        type,
        name,
        partial(tokens, side="right"),
        partial(tokens, side="wrong"),
        stimuli=(PROMPTS.name,),
        matched_control=partial(tokens, side="other") if second else None,
        thresholds=thresholds,
        second=second,
        prompt=prompt,
        moved=moved,
    )


def prompt_tokens(window: Window, *drawn_from: object, kind: str, side: str) -> Pairs:
    """The `right`, `wrong` or `other` tokens of questions of one kind, at each question's query."""
    queries, counts = [], []
    tokens = [_NONE]
    for question in window.questions:
        if question.kind != kind:
            continue
        tokens_of_side = getattr(question, side)
        queries.append(question.query)
        counts.append(len(tokens_of_side))
        tokens.append(tokens_of_side)
    query = np.repeat(np.array(queries, np.int64), counts)
    return token_pairs(query, np.concatenate(tokens))


def token_pairs(query: Int[ndarray, " cell"], token: Int[ndarray, " cell"]) -> Pairs:
    """Cells (query, token)."""
    # tokens are not positions: none of them is after a query
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
    names = [relation.id for relation in (*of_attention(relations), *effects)]
    for part in (MATCHED_CONTROL, SELF):
        for effect in effects:
            if part in effect.parts:
                names.append(part_name(effect.id, part))
    return tuple(names)


_RAISE = partial(Threshold, sign=1)
_SUPPRESS = partial(
    Threshold,
    0.3,
    "ours: 0.3 logits take a quarter of a token's odds away; heads planted to take 1.5 logits take "
    "1.3 or more with noise 0.2 on their weights",
    sign=-1,
)
_PROMPT = partial(
    _RAISE,
    0.3,
    "ours: heads planted to write 1.5 logits keep 0.68 or more with noise 0.1 on their weights; "
    "99.9 % of SmolLM2-135M's shuffled heads have less than 0.09",
)


def followers_of_copy(window: Window) -> Pairs:
    """Next tokens at the second copy of `[bos, r, r]`.

    >>> window = Window("w", np.array([0, 7, 8, 9, 7, 8, 9]), ("",) * 7, copy_length=3,
    ...                 outside=np.array([5, 6]))
    >>> targets = followers_of_copy(window)
    >>> list(zip(targets.query.tolist(), targets.key.tolist()))
    [(4, 8), (5, 9)]
    >>> controls = later_in_copy(window, targets, np.random.default_rng(0))
    >>> list(zip(controls.query.tolist(), controls.key.tolist()))
    [(4, 9)]
    """
    copies = in_second_copy(window, shift=1)
    inside = copies.key <= window.copy_length
    return token_pairs(copies.query[inside], window.tokens[copies.key[inside]])


def later_in_copy(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Tokens after the target in r."""
    first_copy = targets.query[:, None] - window.copy_length
    after = first_copy + np.arange(2, NEXT + 2)
    is_in_copy = after <= window.copy_length
    query = np.repeat(targets.query, is_in_copy.sum(1))
    return token_pairs(query, window.tokens[after[is_in_copy]])


def outside_copy(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Tokens outside r."""
    outside = window.outside
    query = np.repeat(targets.query, len(outside))
    token = np.tile(outside, len(targets.query))
    return token_pairs(query, token)


_ELSEWHERE = "tokens that it attends to from elsewhere"
_UNSEEN_NAMES = "names that are not in the text"

EFFECTS: tuple[Effect, ...] = (
    # copying (Elhage et al. 2021), against a head that always raises the same few tokens, looked at
    # or not
    Effect(
        "copy",
        "looked-at",
        thresholds=_RAISE(
            0.5,
            "ours: half a logit makes a token 1.6 times as likely; heads planted to write 1.5 "
            "logits keep 1.4 or more with noise 0.2 on their weights",
            "raises the token that it attends to",
        ),
        second=_ELSEWHERE,
        top_key=TopKeyCondition(),
    ),
    # McDougall et al. 2023 (arXiv 2310.04625) describe copy suppression of GPT-2 small's L10H7 and
    # L11H10
    Effect(
        "suppress",
        "predicted",
        thresholds=_SUPPRESS(
            "lowers the token that it attends to if earlier layers predict it",
        ),
        second=_ELSEWHERE,
        top_key=TopKeyCondition(predicted=True),
    ),
    Effect(
        "suppress",
        "looked-at",
        thresholds=_SUPPRESS("lowers the token that it attends to"),
        second=_ELSEWHERE,
        top_key=TopKeyCondition(),
    ),
    # copying by induction heads (Olsson et al. 2022), against a head that raises what it saw long
    # ago, lowers what it has seen, or raises all of r
    Effect(
        "induction",
        "repeat",
        followers_of_copy,
        later_in_copy,
        stimuli=(REPEAT.name,),
        matched_control=outside_copy,
        thresholds=_RAISE(
            0.5,
            "ours: half a logit makes the token 1.6 times as likely; heads planted for 1.5 logits "
            "keep 1.1 or more with noise 0.2 on their weights",
            "raises what followed the current token before, in random tokens",
        ),
        second="tokens that stand nowhere in the text",
        moved=True,
    ),
    # successor heads (Gould et al. 2023), against a head that raises all members or the neighbours
    # of one
    prompt_effect(
        "successor",
        "member",
        _PROMPT(
            "raises the successor of a day, month, number or letter, not what is before it",
        ),
        second="other members of the list that the text does not hold",
        prompt="successor",
        moved=False,
    ),
    # name movers (Wang et al. 2022), against a head that raises or lowers all names of the text
    prompt_effect(
        "name-mover",
        "indirect-object",
        _PROMPT("raises the name that is due, not the one that comes twice"),
        second=_UNSEEN_NAMES,
        prompt="indirect-object",
    ),
    prompt_effect(
        "negative-name-mover",
        "indirect-object",
        _PROMPT(
            "lowers the name that is due, not the one that comes twice",
            sign=-1,
        ),
        second=_UNSEEN_NAMES,
        prompt="indirect-object",
    ),
    # against a head that raises all values of the property, or all that the person has
    prompt_effect(
        "retrieval",
        "value",
        _PROMPT(
            "raises the value of the person in question over the values of the others",
        ),
        second="other values of that person",
        prompt="retrieval",
    ),
    # agreement over a noun between subject and verb (Linzen et al. 2016)
    prompt_effect(
        "agreement",
        "number",
        _PROMPT("raises verb forms of the subject's number over the others"),
        prompt="agreement",
    ),
)


def prompt_kinds(effects: Sequence[Effect]) -> set[str]:
    """The kinds of prompts that effects ask by."""
    return {effect.prompt for effect in effects if effect.prompt}


def effects_of(types: Sequence[str] | None, relations: Sequence[Relation]) -> list[Effect]:
    """The effects that a run measures beside its relations.

    Args:
        types: the head types that were asked for, as in `headscope.relations.check_types`.
        relations: what the run scores. Effects that need other text are left out, and so are those
            of a type on request without relations among them.
    """
    measured = {relation.type for relation in relations}
    # a type on request is measured with its relations, or not at all
    left_out = {*types_on_request()} - measured
    # effects that only prompts ask for need none of the relations' text
    stimuli = {PROMPTS.name}
    for relation in relations:
        stimuli.update(relation.stimuli)
    effects: list[Effect] = []
    for effect in EFFECTS:
        is_requested = types is None or ALL in types or effect.type in types
        has_text = stimuli.issuperset(effect.stimuli)
        if is_requested and has_text and effect.type not in left_out:
            effects.append(effect)
    return effects
