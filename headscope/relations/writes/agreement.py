"""Agreement: the head raises the verb forms that fit the subject over those that do not.

Linzen et al. 2016 ask this of a model, over a noun between subject and verb. The laziest heads that
must not pass: one that always raises one form is held against subjects of the other number, which
come as often; one that goes by the noun before the verb against this noun's number, which is the
subject's in half of the prompts.
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
        "agreement",
        "number",
        EffectRule(FLOOR, SOURCE, "raises verb forms of the subject's number over the others"),
        prompt="agreement",
        moved=True,
    ),
)
