"""Successor heads: the head raises what comes next in a list (Gould et al. 2023).

Days, months, numbers, letters and years, in no order: after each member its successor is due. The
laziest heads that must not pass: one that raises all members, or lowers those that it saw, is held
against other members that the text does not hold; one that raises the neighbours of a member
against its predecessor, which the text does not hold either.
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
        "successor",
        "member",
        EffectRule(
            FLOOR,
            SOURCE,
            "raises the successor of a day, month, number or letter, not what is before it",
            second="other members of the list that the text does not hold",
        ),
        prompt="successor",
    ),
)
