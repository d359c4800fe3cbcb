"""Retrieval: the head raises what the text says of the entity that is asked for.

Three people have two properties each; the question for one is in other words, and ends in a word
that stands nowhere before, so that a head that repeats what followed finds nothing to repeat. The
laziest heads that must not pass: one that raises, or lowers, whatever the text holds of the
property, or the last of it, is held against what the other two have, as each of the three is asked
for alike; one that raises all that the person has, against the person's other property.
"""

from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import prompt_effect

FLOOR = 0.3
SOURCE = (
    "ours: heads planted to write 1.5 logits keep 0.68 or more with noise 0.1 on their weights; "
    "99.9 % of SmolLM2-135M's shuffled heads have less than 0.09"
)

EFFECTS = (
    prompt_effect(
        "retrieval",
        "value",
        EffectRule(
            FLOOR,
            SOURCE,
            "raises what the one asked for has, not what the others have",
            second="what else the one asked for has",
        ),
        prompt="retrieval",
        moved=True,
    ),
)
