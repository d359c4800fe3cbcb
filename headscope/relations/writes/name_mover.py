"""Name movers and negative name movers: "Mary and John …, John gave a drink to" (Wang et al. 2022).

A name mover raises the name that is due, a negative one lowers it. The laziest heads that must not
pass: one that raises or lowers all names of the text is held against the name that comes twice;
one that lowers, or raises, the name that comes twice against names that the text does not hold. The
name that is due stands first as often as second.

S-inhibition heads tell name movers where not to look: see `s_inhibition`.
"""

from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import prompt_effect

FLOOR = 0.3
SOURCE = (
    "ours: heads planted to write 1.5 logits keep 0.68 or more with noise 0.1 on their weights; "
    "99.9 % of SmolLM2-135M's shuffled heads have less than 0.09"
)
UNSEEN = "names that the text does not hold"

EFFECTS = (
    prompt_effect(
        "name-mover",
        "indirect-object",
        EffectRule(
            FLOOR,
            SOURCE,
            "raises the name that is due, not the one that comes twice",
            second=UNSEEN,
        ),
        prompt="indirect-object",
        moved=True,
    ),
    prompt_effect(
        "negative-name-mover",
        "indirect-object",
        EffectRule(
            FLOOR,
            SOURCE,
            "lowers the name that is due, not the one that comes twice",
            sign=-1,
            second=UNSEEN,
        ),
        prompt="indirect-object",
        moved=True,
    ),
)
