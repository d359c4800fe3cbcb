"""Under which names the effects are summed, behind those of the relations."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.relations.contested import MATCHED, SELF, part_name
from headscope.relations.writes.effect import Effect


def effect_names(effects: Sequence[Effect]) -> list[str]:
    """The names under which effects are summed: then second controls, then own positions."""
    seconds = (part_name(each.id, MATCHED) for each in effects if each.second)
    selves = (part_name(each.id, SELF) for each in effects if each.moved)
    return [*(each.id for each in effects), *seconds, *selves]


def second_places(effects: Sequence[Effect]) -> dict[int, int]:
    """For each effect with a second control the place of this among `effect_names`."""
    having = [index for index, effect in enumerate(effects) if effect.second]
    return {index: len(effects) + number for number, index in enumerate(having)}


def self_places(effects: Sequence[Effect]) -> dict[int, int]:
    """For each effect that must be moved its own position's place among `effect_names`."""
    having = [index for index, effect in enumerate(effects) if effect.moved]
    first = len(effects) + len(second_places(effects))
    return {index: first + number for number, index in enumerate(having)}
