"""Contested queries: those where the best simple rule is wrong, and a head must know better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations import all_stimuli
from headscope.relations.heuristics import picks, query_class
from headscope.relations.pairs import Pairs, span_pairs, without
from headscope.relations.relation import (
    MATCHED,
    NATURAL,
    SYNTHETIC,
    Relation,
    draws_nothing,
    part_name,
    targets_of,
)


def contested_stimuli(part: str) -> tuple[str, ...]:
    """Names of the stimuli that hold contested queries of a part, whatever a relation's own are."""
    text = "synthetic" if part == SYNTHETIC else "natural"
    return tuple(row.name for row in all_stimuli().values() if row.contested == text)


@dataclass(frozen=True, eq=False)
class ChosenBaseline:
    """The simple rule to beat for each class of query words."""

    rule: Int[ndarray, " class"]
    """Indices into `headscope.relations.heuristics.RULES`."""

    def picks(self, relation: Relation, window: Window) -> Int[ndarray, " position"]:
        """The key that the rule names at each query, −1 if it names none."""
        rule = self.rule[query_class(window)]
        pick = picks(window)[rule, np.arange(len(window))]
        find_own = None if relation.baseline is None else relation.baseline.find
        if find_own is not None and not rule.all():
            pick = np.where(rule == 0, find_own(window), pick)  # a relation's own is the first
        return np.asarray(pick)


def rule_picks(relation: Relation, window: Window) -> Int[ndarray, "rule position"]:
    """Picks of every rule, those of the relation's own in the first row."""
    if relation.baseline is None or relation.baseline.find is None:
        return picks(window)
    return np.concatenate([relation.baseline.find(window)[None], picks(window)[1:]])


@dataclass(frozen=True, eq=False)
class _Contested:
    """A relation's targets at contested queries, and the rule's choice as their control."""

    relation: Relation
    baseline: ChosenBaseline

    def pairs(self, window: Window) -> Pairs:
        return contested_pairs(self.relation, window, self.baseline)

    @draws_nothing
    def control(self, window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
        queries = targets.queries
        key = self.baseline.picks(self.relation, window)[queries]
        queries, key = queries[key >= 0], key[key >= 0]
        rule_keys = span_pairs(
            queries, first_of_word(window, key), key, attention_kind=window.attention_kind
        )
        return without(rule_keys, targets)


def contested_pairs(relation: Relation, window: Window, baseline: ChosenBaseline) -> Pairs:
    """A relation's targets of the queries at which the simple rule is wrong."""
    targets = targets_of(relation, window)
    return targets.take(is_contested(targets, baseline.picks(relation, window)))


def is_contested(targets: Pairs, pick: Int[ndarray, " position"]) -> Bool[ndarray, " pair"]:
    """Mask of the targets of queries whose pick is there and is not one of their targets."""
    size = len(pick)
    right = np.zeros(size, bool)
    right[targets.query[pick[targets.query] == targets.key]] = True
    return np.asarray(~right[targets.query] & (pick[targets.query] >= 0))


def first_of_word(window: Window, last: Int[ndarray, " pair"]) -> Int[ndarray, " pair"]:
    """The first token of the words that end at these positions; elsewhere the position itself."""
    first = np.arange(len(window))
    first[window.words.last] = window.words.first
    return np.asarray(first[last])


def with_parts(
    relations: Sequence[Relation],
    baselines: dict[str, ChosenBaseline],
    synthetic: Iterable[str] = (),
) -> list[Relation]:
    """The relations, and behind them the parts of each that are summed with it."""
    synthetic = set(synthetic)
    parts = []
    for relation in relations:
        if relation.matched is not None:
            parts.append(_part(relation, MATCHED, control=relation.matched))
        if relation.id in baselines:
            contested = _Contested(relation, baselines[relation.id])
            for name in (NATURAL, SYNTHETIC) if relation.id in synthetic else (NATURAL,):
                part = {
                    "pairs": contested.pairs,
                    "control": contested.control,
                    "stimuli": contested_stimuli(name),
                }
                parts.append(_part(relation, name, **part))
    return [*relations, *parts]


def _part(relation: Relation, name: str, **changes: object) -> Relation:
    part = replace(relation, baseline=None, matched=None, **changes)  # type: ignore[arg-type]
    return replace(part, name=part_name(relation.name, name))
