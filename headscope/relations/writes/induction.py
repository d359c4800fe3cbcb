"""Induction's write: the head raises the token that followed the current one before.

Olsson et al. 2022 ask two things of an induction head, prefix matching and copying; this is the
second, asked of what the head writes and not of its weights.

The laziest heads that must not pass, in `[bos, r, r]`: one that lowers what it has seen lowers the
target less than the tokens of r that came twice by now, and one that raises what it saw long ago
raises it more than those. So the control is what stands just after the target, which came as often
and nearly as long ago. One that raises all of r, or lowers all but r, is held against the same
tokens; one that lowers r, the target least, against tokens that stand nowhere in the text.
"""

import numpy as np

from headscope.corpus.window import Window
from headscope.relations.induction import follower_of_earlier_same, in_second_copy
from headscope.relations.pairs import Pairs
from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import Effect, other_tokens, token_pairs

FLOOR = 0.5
SOURCE = (
    "ours: half a logit makes the token 1.6 times as likely; heads planted for 1.5 logits keep "
    "1.1 or more with noise 0.2 on their weights"
)
NEXT = 4
"""Tokens after the target that it is compared with."""


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


EFFECTS = (
    Effect(
        "induction",
        "repeat",
        followers_of_copy,
        later_in_copy,
        stimuli=("repeat",),
        matched=outside_copy,
        rule=EffectRule(
            FLOOR,
            SOURCE,
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
        rule=EffectRule(
            FLOOR,
            SOURCE,
            "raises what followed the current token before, in natural text",
            taggable=False,
        ),
        moved=True,
    ),
)
