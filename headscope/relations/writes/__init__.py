"""The table of what heads write. A new kind is one new file with its effects, and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.relations.relation import Relation
from headscope.relations.writes import (
    agreement,
    copy,
    induction,
    name_mover,
    related,
    retrieval,
    s_inhibition,
    successor,
    suppress,
)
from headscope.relations.writes.effect import (
    PROMPTS,
    Effect,
    Looked,
    Sides,
    Tokens,
    find_tokens,
    other_tokens,
)

__all__ = [
    "EFFECTS",
    "PROMPTS",
    "Effect",
    "Looked",
    "Sides",
    "Tokens",
    "effects_of",
    "find_tokens",
    "other_tokens",
]

EFFECTS: tuple[Effect, ...] = (
    *copy.EFFECTS,
    *suppress.EFFECTS,
    *induction.EFFECTS,
    *successor.EFFECTS,
    *name_mover.EFFECTS,
    *s_inhibition.EFFECTS,
    *retrieval.EFFECTS,
    *agreement.EFFECTS,
    *related.EFFECTS,
)


def effects_of(types: Sequence[str] | None, relations: Sequence[Relation]) -> list[Effect]:
    """The effects that a run measures beside its relations.

    Args:
        types: the head types that were asked for; all effects when None, else those of these types.
        relations: what the run scores; effects that need other text than these are left out.
    """
    stimuli = {PROMPTS, *(stimulus for each in relations for stimulus in each.stimuli)}
    return [
        effect
        for effect in EFFECTS
        if (types is None or effect.type in types) and set(effect.stimuli) <= stimuli
    ]
