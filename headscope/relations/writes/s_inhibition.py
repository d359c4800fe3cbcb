"""S-inhibition: heads that turn later heads away from the name that comes twice (Wang et al. 2022).

In "Mary and John …, John gave a drink to" such a head reads the second John at the last token and
writes there what lowers the score of the first John under the queries of later heads. The laziest
heads that must not pass: one that lowers all names is held against the name that is due; one that
reads this name and raises it, or goes by the last token itself, reads nothing where the other name
stands, and only what is read there counts as moved. The name that is due stands first as often as
second.

Words that are no names are no control: a head may raise all names and this one less.
"""

from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import prompt_effect

FLOOR = 0.1
SOURCE = (
    "ours: heads planted to do it keep 41 or more with noise 0.1 on their weights, the strongest "
    "of mini's shuffled heads has 0.05"
)

EFFECTS = (
    prompt_effect(
        "s-inhibition",
        "subject",
        EffectRule(
            FLOOR,
            SOURCE,
            "turns later heads from the name that comes twice",
            sign=-1,
            unit="nats",
        ),
        prompt="indirect-object",
        moved=True,
        of_keys=True,
    ),
)
