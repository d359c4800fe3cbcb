"""Copy suppression: the head lowers the token that it looks at, where it was predicted already.

McDougall et al. 2023 (arXiv 2310.04625) describe it of GPT-2 small's L10H7 and L11H10: if earlier
layers predict a token and the text holds it, the head looks at it and lowers it.
"""

from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import ELSEWHERE, Effect, TopKeyCondition

FLOOR = 0.3
SOURCE = (
    "ours: 0.3 logits take a quarter of a token's odds away; heads planted to take 1.5 logits take "
    "1.3 or more with noise 0.2 on their weights"
)

EFFECTS = (
    Effect(
        "suppress",
        "predicted",
        rule=EffectRule(
            FLOOR,
            SOURCE,
            "lowers the token that it looks at, where the layers before it predict it",
            sign=-1,
            second=ELSEWHERE,
        ),
        top_key=TopKeyCondition(predicted=True),
    ),
    Effect(
        "suppress",
        "looked-at",
        rule=EffectRule(
            FLOOR, SOURCE, "lowers the token that it looks at", sign=-1, second=ELSEWHERE
        ),
        top_key=TopKeyCondition(),
    ),
)
