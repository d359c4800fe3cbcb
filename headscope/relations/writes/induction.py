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
from headscope.relations.relation import Rule
from headscope.relations.writes.effect import Effect, Sides, Tokens, other_tokens

FLOOR = 0.5
SOURCE = (
    "ours: half a logit makes the token 1.6 times as likely; heads planted for 1.5 logits keep "
    "1.1 or more with noise 0.2 on their weights"
)
NEXT = 4
"""Tokens after the target that it is compared with."""


def followers_of_copy(window: Window, rng: np.random.Generator) -> Sides:
    """In `[bos, r, r]`: at the second copy what comes next, against what comes after it in r.

    The second control is tokens outside r.

    >>> window = Window("w", np.array([0, 7, 8, 9, 7, 8, 9]), ("",) * 7, copy_length=3,
    ...                 outside=np.array([5, 6]))
    >>> sides = followers_of_copy(window, np.random.default_rng(0))
    >>> list(zip(sides.targets.query.tolist(), sides.targets.token.tolist()))
    [(4, 8), (5, 9)]
    >>> list(zip(sides.controls.query.tolist(), sides.controls.token.tolist()))
    [(4, 9)]
    """
    found = in_second_copy(window, shift=1)
    inside = found.key <= window.copy_length
    query, key = found.query[inside], found.key[inside]
    after = key[:, None] + np.arange(1, NEXT + 1)
    kept = after <= window.copy_length
    return Sides(
        Tokens(query, window.tokens[key]),
        Tokens(np.repeat(query, kept.sum(1)), window.tokens[after[kept]]),
        Tokens(np.repeat(query, len(window.outside)), np.tile(window.outside, len(query))),
    )


def followers_in_text(window: Window, rng: np.random.Generator) -> Sides:
    """In text: what followed the same token before, against other tokens of the text."""
    found = follower_of_earlier_same(window)
    targets = Tokens(found.query, window.tokens[found.key])
    return Sides(targets, other_tokens(window, targets, rng))


EFFECTS = (
    Effect(
        "induction",
        "repeat",
        Rule(FLOOR, SOURCE, "raises what followed the current token before, in random tokens"),
        find=followers_of_copy,
        stimuli=("repeat",),
        second="tokens that stand nowhere in the text",
        moved=True,
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
        moved=True,
    ),
)
