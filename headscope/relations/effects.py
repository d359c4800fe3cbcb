"""The table of direct effects. Each has controls against heads that raise or lower other tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from headscope.corpus.window import Window
from headscope.relations import head_types
from headscope.relations.effect import (
    Effect,
    TopKeyCondition,
    other_tokens,
    prompt_effect,
    token_pairs,
)
from headscope.relations.head_type import ALL
from headscope.relations.induction import follower_of_earlier_same, in_second_copy
from headscope.relations.pairs import Pairs
from headscope.relations.relation import EffectRule, Relation
from headscope.stimuli.prompts import PROMPTS
from headscope.stimuli.repeat import REPEAT

NEXT = 4
"""Tokens after the target that induction is compared with."""

_COPY = partial(
    EffectRule,
    0.5,
    "ours: half a logit makes a token 1.6 times as likely; heads planted to write 1.5 logits keep "
    "1.4 or more with noise 0.2 on their weights",
)
_INDUCTION = partial(
    EffectRule,
    0.5,
    "ours: half a logit makes the token 1.6 times as likely; heads planted for 1.5 logits keep "
    "1.1 or more with noise 0.2 on their weights",
)
_SUPPRESS = partial(
    EffectRule,
    0.3,
    "ours: 0.3 logits take a quarter of a token's odds away; heads planted to take 1.5 logits take "
    "1.3 or more with noise 0.2 on their weights",
)
_PROMPT = partial(
    EffectRule,
    0.3,
    "ours: heads planted to write 1.5 logits keep 0.68 or more with noise 0.1 on their weights; "
    "99.9 % of SmolLM2-135M's shuffled heads have less than 0.09",
)
_RELATED = partial(
    EffectRule,
    0.3,
    "ours: as for successors; 99.9 % of SmolLM2-135M's shuffled heads have less than 0.04; none "
    "was planted",
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
    after = targets.query[:, None] - window.copy_length + np.arange(2, NEXT + 2)
    is_in_copy = after <= window.copy_length
    query = np.repeat(targets.query, is_in_copy.sum(1))
    return token_pairs(query, window.tokens[after[is_in_copy]])


def outside_copy(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Tokens outside r."""
    query, outside = targets.query, window.outside
    return token_pairs(np.repeat(query, len(outside)), np.tile(outside, len(query)))


def followers_in_text(window: Window) -> Pairs:
    """Tokens that followed the same token before, in text."""
    followers = follower_of_earlier_same(window)
    return token_pairs(followers.query, window.tokens[followers.key])


_ELSEWHERE = "tokens that it looks at from elsewhere"
_UNSEEN_NAMES = "names that the text does not hold"

EFFECTS: tuple[Effect, ...] = (
    # copying (Elhage et al. 2021), against a head that always raises the same few tokens, looked at
    # or not
    Effect(
        "copy",
        "looked-at",
        rule=_COPY("raises the token that it looks at", second=_ELSEWHERE),
        top_key=TopKeyCondition(),
    ),
    # McDougall et al. 2023 (arXiv 2310.04625) describe copy suppression of GPT-2 small's L10H7 and
    # L11H10
    Effect(
        "suppress",
        "predicted",
        rule=_SUPPRESS(
            "lowers the token that it looks at, where the layers before it predict it",
            sign=-1,
            second=_ELSEWHERE,
        ),
        top_key=TopKeyCondition(predicted=True),
    ),
    Effect(
        "suppress",
        "looked-at",
        rule=_SUPPRESS("lowers the token that it looks at", sign=-1, second=_ELSEWHERE),
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
        matched=outside_copy,
        rule=_INDUCTION(
            "raises what followed the current token before, in random tokens",
            second="tokens that stand nowhere in the text",
        ),
        moved=True,
    ),
    Effect(
        "induction",
        "natural",
        followers_in_text,
        other_tokens,
        rule=_INDUCTION(
            "raises what followed the current token before, in natural text", taggable=False
        ),
        moved=True,
    ),
    # successor heads (Gould et al. 2023), against a head that raises all members or the neighbours
    # of one
    prompt_effect(
        "successor",
        "member",
        _PROMPT(
            "raises the successor of a day, month, number or letter, not what is before it",
            second="other members of the list that the text does not hold",
        ),
        prompt="successor",
        moved=False,
    ),
    # name movers (Wang et al. 2022), against a head that raises or lowers all names of the text
    prompt_effect(
        "name-mover",
        "indirect-object",
        _PROMPT("raises the name that is due, not the one that comes twice", second=_UNSEEN_NAMES),
        prompt="indirect-object",
    ),
    prompt_effect(
        "negative-name-mover",
        "indirect-object",
        _PROMPT(
            "lowers the name that is due, not the one that comes twice",
            sign=-1,
            second=_UNSEEN_NAMES,
        ),
        prompt="indirect-object",
    ),
    # against a head that raises all values of the property, or all that the person has
    prompt_effect(
        "retrieval",
        "value",
        _PROMPT(
            "raises what the one asked for has, not what the others have",
            second="what else the one asked for has",
        ),
        prompt="retrieval",
    ),
    # agreement over a noun between subject and verb (Linzen et al. 2016)
    prompt_effect(
        "agreement",
        "number",
        _PROMPT("raises verb forms of the subject's number over the others"),
        prompt="agreement",
    ),
    # relations that MAPS (Elhelo and Geva 2024, arXiv 2412.11965) reads off weights, against a head
    # that raises all past tenses, or copies the word
    *(
        prompt_effect(
            "relation",
            kind,
            _RELATED(
                f"raises {meaning} where it is asked for", second="the word that it is asked of"
            ),
            prompt=kind,
        )
        for kind, meaning in (
            ("antonym", "a word's opposite"),
            ("capital", "a country's capital"),
            ("past", "a verb's past tense"),
            ("comparative", "an adjective's comparative"),
        )
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
    left_out = {name for name, kind in head_types().items() if kind.on_request} - measured
    stimuli = {PROMPTS.name, *(stimulus for relation in relations for stimulus in relation.stimuli)}
    return [
        effect
        for effect in EFFECTS
        if effect.type not in left_out
        and (types is None or {effect.type, ALL} & {*types})
        and set(effect.stimuli) <= stimuli
    ]
