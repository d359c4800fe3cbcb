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
    Effect,
    TopKeyCondition,
    other_tokens,
    sum_names,
)
from headscope.stimuli.prompts import PROMPTS

__all__ = [
    "EFFECTS",
    "Effect",
    "TopKeyCondition",
    "effects_of",
    "other_tokens",
    "prompt_kinds",
    "sum_names",
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


def prompt_kinds(effects: Sequence[Effect]) -> set[str]:
    """The kinds of prompts that effects ask by."""
    return {effect.prompt for effect in effects if effect.prompt}


def effects_of(types: Sequence[str] | None, relations: Sequence[Relation]) -> list[Effect]:
    """The effects that a run measures beside its relations.

    Args:
        types: the head types that were asked for; all effects when None, else those of these types.
        relations: what the run scores; effects that need other text than these are left out.
    """
    stimuli = {PROMPTS.name, *(stimulus for relation in relations for stimulus in relation.stimuli)}
    return [
        effect
        for effect in EFFECTS
        if (types is None or effect.type in types) and set(effect.stimuli) <= stimuli
    ]
