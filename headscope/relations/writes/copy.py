"""Copying: the head raises the token that it looks at (Elhage et al. 2021).

The laziest heads that must not pass: one that raises every token of the text, or whatever is
frequent in it, is held against all other tokens of the text; one that always raises the same few
tokens and looks at them too is held against what it looks at from other queries.
"""

from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import ELSEWHERE, Effect, TopKeyCondition

FLOOR = 0.5
SOURCE = (
    "ours: half a logit makes a token 1.6 times as likely; heads planted to write 1.5 logits keep "
    "1.4 or more with noise 0.2 on their weights"
)

EFFECTS = (
    Effect(
        "copy",
        "looked-at",
        rule=EffectRule(FLOOR, SOURCE, "raises the token that it looks at", second=ELSEWHERE),
        top_key=TopKeyCondition(),
    ),
)
