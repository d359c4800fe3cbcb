"""Parts of relations: what is summed separately beside a relation, under a name of its own.

================= ==================== ======================================================
part              object               what is summed
================= ==================== ======================================================
`HARD`            `ComparedPart`       preference of a head for the target at hard queries
`EASY`            `ComparedPart`       the same at easy queries
`MATCHED_CONTROL` `MatchedControlPart` attention on the targets, and on the matched control
`MATCHED_CONTROL` an `Effect`          logits of the targets, and of the matched control
`SELF`            an `Effect`          what a head moves to a query from the query's own position
================= ==================== ======================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeGuard

from headscope.relations.hard_queries import ChosenBaseline
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.challenge import CHALLENGE

HARD, EASY, MATCHED_CONTROL, SELF = "hard", "easy", "matched", "own-position"
PARTS = (HARD, EASY, MATCHED_CONTROL, SELF)


def part_name(relation: str, part: str) -> str:
    """The name of a relation's part.

    >>> part_name("obj:dep>head", "hard"), is_part("obj:dep>head/hard")
    ('obj:dep>head/hard', True)
    """
    return f"{relation}/{part}"


def is_part(relation: str) -> bool:
    """True for the name of a relation's part."""
    return relation.rpartition("/")[2] in PARTS and "/" in relation


@dataclass(frozen=True)
class MatchedControlPart(Relation):
    """A relation with its matched control, which is summed with it."""

    parent: Relation = field(kw_only=True)

    def targets_in(self, window_pairs: WindowPairs) -> Pairs:
        """The targets of the relation itself."""
        return window_pairs.targets(self.parent)


@dataclass(frozen=True)
class ComparedPart(Relation):
    """The hard or the easy queries of a relation: targets against all other candidates."""

    parent: Relation = field(kw_only=True)
    baseline_choice: ChosenBaseline = field(kw_only=True)
    part: str = field(kw_only=True)
    """`HARD` or `EASY`."""

    def targets_in(self, window_pairs: WindowPairs) -> Pairs:
        """Targets of the compared queries."""
        compared = window_pairs.compared(self.parent, self.baseline_choice)
        return compared.hard if self.part == HARD else compared.easy

    def candidates_in(self, window_pairs: WindowPairs) -> Pairs:
        """Cells of the other candidates of each query, and of the distractor."""
        targets = window_pairs.targets(self)
        return self.baseline_choice.other_candidates(self.parent, window_pairs, targets)


def is_compared(relation: Relation) -> TypeGuard[ComparedPart]:
    """True for a part whose queries compare the target with other candidates."""
    return isinstance(relation, ComparedPart)


def with_parts(
    relations: Sequence[Relation], baselines: dict[str, ChosenBaseline]
) -> list[Relation]:
    """The relations, followed by the parts of each that are summed separately."""
    parts: list[Relation] = []
    for relation in relations:
        if relation.matched_control is not None:
            # attention on the matched control is summed as if it were the control
            fields_of_part = _fields_of_part(relation, MATCHED_CONTROL)
            fields_of_part["control"] = relation.matched_control
            parts.append(MatchedControlPart(**fields_of_part, parent=relation))
        if relation.id in baselines:
            # queries where the best baseline is wrong, and where it is right
            for name in (HARD, EASY):
                fields_of_part = _fields_of_part(relation, name)
                fields_of_part["stimuli"] = (*relation.stimuli, CHALLENGE.name)
                parts.append(
                    ComparedPart(
                        **fields_of_part,
                        parent=relation,
                        baseline_choice=baselines[relation.id],
                        part=name,
                    )
                )
    return [*relations, *parts]


def _fields_of_part(relation: Relation, name: str) -> dict[str, Any]:
    """The fields of a relation for one of its parts, which has no parts itself."""
    values = {column.name: getattr(relation, column.name) for column in fields(Relation)}
    return values | {
        "name": part_name(relation.name, name),
        "baseline": None,
        "matched_control": None,
    }
