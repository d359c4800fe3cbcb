"""Relation heads: asked for a word's opposite, past, comparative or capital, the head raises it.

MAPS (Elhelo and Geva 2024, arXiv 2412.11965) reads such relations off a head's weights; here they
are asked of what the head writes after a prompt that names them, so that a head that could but does
not has no tag. The laziest heads that must not pass: one that raises all past tenses is held
against those of other verbs; one that copies the word, and so raises what is like it, against the
word itself.
"""

from headscope.relations.relation import EffectRule
from headscope.relations.writes.effect import prompt_effect

FLOOR = 0.3
SOURCE = (
    "ours: as for successors; 99.9 % of SmolLM2-135M's shuffled heads have less than 0.04; none "
    "was planted"
)
KINDS = {
    "antonym": "a word's opposite",
    "capital": "a country's capital",
    "past": "a verb's past tense",
    "comparative": "an adjective's comparative",
}

EFFECTS = tuple(
    prompt_effect(
        "relation",
        kind,
        EffectRule(
            FLOOR,
            SOURCE,
            f"raises {meaning} where it is asked for",
            second="the word that it is asked of",
        ),
        prompt=kind,
        moved=True,
    )
    for kind, meaning in KINDS.items()
)
