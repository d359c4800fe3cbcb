"""Induction's write: the head raises the token that followed the current one before.

Olsson et al. 2022 ask two things of an induction head, prefix matching and copying; this is the
second, asked of what the head writes and not of its weights.
"""

import numpy as np

from headscope.corpus.window import Window
from headscope.relations.induction import follower_of_earlier_same, in_second_copy
from headscope.relations.relation import Rule
from headscope.relations.writes.effect import Effect, Tokens, other_tokens

FLOOR = 0.5
SOURCE = "ours: as for copying; half a logit makes the token 1.6 times as likely"


def followers_of_copy(window: Window, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """In `[bos, r, r]`: at the second copy what comes next, against other tokens of r."""
    found = in_second_copy(window, shift=1)
    targets = Tokens(found.query, window.tokens[found.key])
    return targets, other_tokens(window, targets, rng)


def followers_in_text(window: Window, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    """In text: what followed the same token before, against other tokens of the text."""
    found = follower_of_earlier_same(window)
    targets = Tokens(found.query, window.tokens[found.key])
    return targets, other_tokens(window, targets, rng)


EFFECTS = (
    Effect(
        "induction",
        "repeat",
        Rule(FLOOR, SOURCE, "raises what followed the current token before, in random tokens"),
        find=followers_of_copy,
        stimuli=("repeat",),
    ),
    Effect(
        "induction",
        "natural",
        Rule(
            FLOOR,
            SOURCE,
            "raises what followed the current token before, in natural text",
            taggable=False,
        ),
        find=followers_in_text,
    ),
)
