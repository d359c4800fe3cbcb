"""The table of what heads write. A new kind is one new file with its effects, and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.relations.relation import Relation
from headscope.relations.writes import copy, induction, suppress
from headscope.relations.writes.effect import Effect, Looked, Tokens, find_tokens, other_tokens

__all__ = ["EFFECTS", "Effect", "Looked", "Tokens", "effects_of", "find_tokens", "other_tokens"]

EFFECTS: tuple[Effect, ...] = (*copy.EFFECTS, *suppress.EFFECTS, *induction.EFFECTS)


def effects_of(types: Sequence[str] | None, relations: Sequence[Relation]) -> list[Effect]:
    """The effects that a run measures beside its relations.

    Args:
        types: the head types that were asked for; all effects when None, else those of these types.
        relations: what the run scores; effects that need other text than these are left out.
    """
    stimuli = {stimulus for relation in relations for stimulus in relation.stimuli}
    return [
        effect
        for effect in EFFECTS
        if (types is None or effect.type in types) and set(effect.stimuli) <= stimuli
    ]
