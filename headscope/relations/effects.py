"""The table of what heads write: a row of `EFFECTS` each, with its source.

Beside each stand the laziest heads that must not pass, and the control that refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from headscope.corpus.window import Window
from headscope.relations import head_types
from headscope.relations.effect import (
    ELSEWHERE,
    Effect,
    TopKeyCondition,
    other_tokens,
    prompt_effect,
    token_pairs,
)
from headscope.relations.induction import follower_of_earlier_same, in_second_copy
from headscope.relations.pairs import Pairs
from headscope.relations.relation import EffectRule, Relation
from headscope.relations.types import ALL
from headscope.stimuli.prompts import PROMPTS

NEXT = 4
"""Tokens after the target that induction is compared with."""

COPY_RULE = partial(
    EffectRule,
    0.5,
    "ours: half a logit makes a token 1.6 times as likely; heads planted to write 1.5 logits keep "
    "1.4 or more with noise 0.2 on their weights",
)
INDUCTION_RULE = partial(
    EffectRule,
    0.5,
    "ours: half a logit makes the token 1.6 times as likely; heads planted for 1.5 logits keep "
    "1.1 or more with noise 0.2 on their weights",
)
SUPPRESS_RULE = partial(
    EffectRule,
    0.3,
    "ours: 0.3 logits take a quarter of a token's odds away; heads planted to take 1.5 logits take "
    "1.3 or more with noise 0.2 on their weights",
)
PROMPT_RULE = partial(
    EffectRule,
    0.3,
    "ours: heads planted to write 1.5 logits keep 0.68 or more with noise 0.1 on their weights; "
    "99.9 % of SmolLM2-135M's shuffled heads have less than 0.09",
)
RELATED_RULE = partial(
    EffectRule,
    0.3,
    "ours: as for successors; 99.9 % of SmolLM2-135M's shuffled heads have less than 0.04; none "
    "was planted",
)
RELATED_KINDS = {
    "antonym": "a word's opposite",
    "capital": "a country's capital",
    "past": "a verb's past tense",
    "comparative": "an adjective's comparative",
}
UNSEEN_NAMES = "names that the text does not hold"


def followers_of_copy(window: Window) -> Pairs:
    """In `[bos, r, r]`: at the second copy what comes next.

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
    """What comes after the target in r."""
    after = targets.query[:, None] - window.copy_length + np.arange(2, NEXT + 2)
    is_in_copy = after <= window.copy_length
    query = np.repeat(targets.query, is_in_copy.sum(1))
    return token_pairs(query, window.tokens[after[is_in_copy]])


def outside_copy(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Tokens outside r."""
    query, outside = targets.query, window.outside
    return token_pairs(np.repeat(query, len(outside)), np.tile(outside, len(query)))


def followers_in_text(window: Window) -> Pairs:
    """In text: what followed the same token before."""
    followers = follower_of_earlier_same(window)
    return token_pairs(followers.query, window.tokens[followers.key])


COPY = Effect(
    "copy",
    "looked-at",
    rule=COPY_RULE("raises the token that it looks at", second=ELSEWHERE),
    top_key=TopKeyCondition(),
)
"""Copying: the head raises the token that it looks at (Elhage et al. 2021).

The laziest heads that must not pass: one that raises every token of the text, or whatever is
frequent in it, is held against all other tokens of the text; one that always raises the same few
tokens and looks at them too is held against what it looks at from other queries.
"""

SUPPRESS = (
    Effect(
        "suppress",
        "predicted",
        rule=SUPPRESS_RULE(
            "lowers the token that it looks at, where the layers before it predict it",
            sign=-1,
            second=ELSEWHERE,
        ),
        top_key=TopKeyCondition(predicted=True),
    ),
    Effect(
        "suppress",
        "looked-at",
        rule=SUPPRESS_RULE("lowers the token that it looks at", sign=-1, second=ELSEWHERE),
        top_key=TopKeyCondition(),
    ),
)
"""Copy suppression: the head lowers the token that it looks at, where it was predicted already.

McDougall et al. 2023 (arXiv 2310.04625) describe it of GPT-2 small's L10H7 and L11H10: if earlier
layers predict a token and the text holds it, the head looks at it and lowers it.
"""

INDUCTION = (
    Effect(
        "induction",
        "repeat",
        followers_of_copy,
        later_in_copy,
        stimuli=("repeat",),
        matched=outside_copy,
        rule=INDUCTION_RULE(
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
        rule=INDUCTION_RULE(
            "raises what followed the current token before, in natural text", taggable=False
        ),
        moved=True,
    ),
)
"""Induction's write: the head raises the token that followed the current one before.

Olsson et al. 2022 ask two things of an induction head, prefix matching and copying; this is the
second, asked of what the head writes and not of its weights.

The laziest heads that must not pass, in `[bos, r, r]`: one that lowers what it has seen lowers the
target less than the tokens of r that came twice by now, and one that raises what it saw long ago
raises it more than those. So the control is what stands just after the target, which came as often
and nearly as long ago. One that raises all of r, or lowers all but r, is held against the same
tokens; one that lowers r, the target least, against tokens that stand nowhere in the text.
"""

SUCCESSOR = prompt_effect(
    "successor",
    "member",
    PROMPT_RULE(
        "raises the successor of a day, month, number or letter, not what is before it",
        second="other members of the list that the text does not hold",
    ),
    prompt="successor",
)
"""Successor heads: the head raises what comes next in a list (Gould et al. 2023).

Days, months, numbers, letters and years, in no order: after each member its successor is due. The
laziest heads that must not pass: one that raises all members, or lowers those that it saw, is held
against other members that the text does not hold; one that raises the neighbours of a member
against its predecessor, which the text does not hold either.
"""

NAME_MOVERS = (
    prompt_effect(
        "name-mover",
        "indirect-object",
        PROMPT_RULE(
            "raises the name that is due, not the one that comes twice", second=UNSEEN_NAMES
        ),
        prompt="indirect-object",
        moved=True,
    ),
    prompt_effect(
        "negative-name-mover",
        "indirect-object",
        PROMPT_RULE(
            "lowers the name that is due, not the one that comes twice",
            sign=-1,
            second=UNSEEN_NAMES,
        ),
        prompt="indirect-object",
        moved=True,
    ),
)
"""Name movers and negative name movers: "Mary and John …, John gave a drink to" (Wang et al. 2022).

A name mover raises the name that is due, a negative one lowers it. The laziest heads that must not
pass: one that raises or lowers all names of the text is held against the name that comes twice;
one that lowers, or raises, the name that comes twice against names that the text does not hold. The
name that is due stands first as often as second.
"""

RETRIEVAL = prompt_effect(
    "retrieval",
    "value",
    PROMPT_RULE(
        "raises what the one asked for has, not what the others have",
        second="what else the one asked for has",
    ),
    prompt="retrieval",
    moved=True,
)
"""Retrieval: the head raises what the text says of the entity that is asked for.

Three people have two properties each; the question for one is in other words, and ends in a word
that stands nowhere before, so that a head that repeats what followed finds nothing to repeat. The
laziest heads that must not pass: one that raises, or lowers, whatever the text holds of the
property, or the last of it, is held against what the other two have, as each of the three is asked
for alike; one that raises all that the person has, against the person's other property.
"""

AGREEMENT = prompt_effect(
    "agreement",
    "number",
    PROMPT_RULE("raises verb forms of the subject's number over the others"),
    prompt="agreement",
    moved=True,
)
"""Agreement: the head raises the verb forms that fit the subject over those that do not.

Linzen et al. 2016 ask this of a model, over a noun between subject and verb. The laziest heads that
must not pass: one that always raises one form is held against subjects of the other number, which
come as often; one that goes by the noun before the verb against this noun's number, which is the
subject's in half of the prompts.
"""

RELATED = tuple(
    prompt_effect(
        "relation",
        kind,
        RELATED_RULE(
            f"raises {meaning} where it is asked for", second="the word that it is asked of"
        ),
        prompt=kind,
        moved=True,
    )
    for kind, meaning in RELATED_KINDS.items()
)
"""Relation heads: asked for a word's opposite, past, comparative or capital, the head raises it.

MAPS (Elhelo and Geva 2024, arXiv 2412.11965) reads such relations off a head's weights; here they
are asked of what the head writes after a prompt that names them, so that a head that could but does
not has no tag. The laziest heads that must not pass: one that raises all past tenses is held
against those of other verbs; one that copies the word, and so raises what is like it, against the
word itself.
"""

EFFECTS: tuple[Effect, ...] = (
    COPY,
    *SUPPRESS,
    *INDUCTION,
    SUCCESSOR,
    *NAME_MOVERS,
    RETRIEVAL,
    AGREEMENT,
    *RELATED,
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
