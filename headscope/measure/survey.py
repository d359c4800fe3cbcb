"""What a text says before any model reads it: which simple rules find what, and where not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import EXCERPT, Window
from headscope.measure.scarce import ENOUGH, first_excerpts, take_contested
from headscope.relations.across_rules import ACROSS, DIAGONALS
from headscope.relations.contested import (
    BUILT,
    NATURAL,
    STIMULI,
    Chosen,
    contested_pairs,
    is_part,
    rule_picks,
    with_parts,
)
from headscope.relations.pairs import Pairs
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.relations.simple_rules import (
    ALL_RULES,
    CLASS_COUNT,
    OFFSETS,
    RULES,
    query_class,
)

HOPE = 10
"""Contested queries that a text must hold for more to be looked for: of what is rarer than that too
few would be found."""
FEWEST = 20
"""Queries of a class for a rule of its own; else that of all classes is taken."""


@dataclass(eq=False)
class Counts:
    """For one relation: queries, and how many of them each simple rule gets right."""

    right: Int[ndarray, "class rule"] = field(
        default_factory=lambda: np.zeros((CLASS_COUNT, len(ALL_RULES)), np.int64)
    )
    queries: Int[ndarray, " class"] = field(default_factory=lambda: np.zeros(CLASS_COUNT, np.int64))

    def add(self, relation: Relation, window: Window, targets: Pairs) -> None:
        """Count the queries of a window's targets."""
        if not len(targets):
            return
        classes = query_class(window)
        right = rule_picks(relation, window)[:, targets.query] == targets.key
        one_hot = classes[targets.query][:, None] == np.arange(CLASS_COUNT)
        # a product of small whole numbers, which single precision holds exactly
        counted = (right.astype(np.float32) @ one_hot.astype(np.float32)).T.astype(int)
        self.right[:, : len(right)] += (
            counted  # of a causal model's window only rules that look back
        )
        self.queries += np.bincount(classes[targets.queries], minlength=CLASS_COUNT)

    def choose(self, relation: Relation) -> Chosen:
        """The rule that is right most often, for each class of words that has enough queries.

        It is chosen on the whole text, as that which fits it best: no rule is harder to beat. Both
        halves of the documents are held against the same, else they would differ by chance.
        """
        right = self._allowed(relation)
        rule = np.full(CLASS_COUNT, right.sum(0).argmax())
        if relation.baseline is not None and relation.baseline.by_class:
            rule = np.where(self.queries >= FEWEST, right.argmax(-1), rule)
        return Chosen(rule)

    def rate(self, relation: Relation, chosen: Chosen) -> float:
        """Share of the queries that the chosen rules get right."""
        right = self._allowed(relation)[np.arange(CLASS_COUNT), chosen.rule]
        return float(right.clip(0).sum() / self.queries.sum())

    def best_offset_rate(self) -> float:
        """The same of rules that are a fixed distance."""
        back, ahead = (slice(start, start + OFFSETS) for start in (1, len(RULES)))
        first = len(ALL_RULES) - len(ACROSS)  # across, distances from the diagonal
        across = slice(first, first + DIAGONALS)
        best = max(self.right[:, each].sum(0).max() for each in (back, ahead, across))
        return float(best / self.queries.sum())

    def best_rule(self, chosen: Chosen) -> str:
        """The name of the rule that the most queries are held against."""
        of = np.bincount(chosen.rule, weights=self.queries, minlength=len(ALL_RULES))
        return ALL_RULES[int(of.argmax())]

    def by_class(self, relation: Relation) -> Float[ndarray, "class rule"]:
        """The share of all queries that each rule gets right, class by class."""
        return np.asarray(self._allowed(relation).clip(0) / self.queries.sum())

    def _allowed(self, relation: Relation) -> Int[ndarray, "class rule"]:
        right = self.right.copy()
        baseline = relation.baseline
        if baseline is not None:
            right[..., [ALL_RULES.index(name) for name in baseline.without]] = -1
            if baseline.own is None:
                right[..., 0] = -1
        return right


@dataclass(frozen=True, eq=False)
class Survey:
    """The simple rules to beat on a text, and what they get right of it."""

    chosen: dict[str, Chosen]
    """By relation; those that have simple rules and queries."""
    facts: dict[str, dict[str, Any]]
    """By relation: `baseline`, the best rule's name, `baseline_rate`, `best_offset_rate`, the
    number of `contested_queries` in natural text, and the `frontier` at these, `natural_rules`,
    and at those of sentences made for the purpose, `built_rules`."""
    further: tuple[Window, ...] = ()
    """Natural text that is read for its contested queries alone."""
    built: tuple[Window, ...] = ()
    """Sentences made for the purpose, likewise."""

    def parts(self, relations: Sequence[Relation]) -> list[Relation]:
        """The relations and what is summed beside them; see `with_parts`."""
        asked = [name for name, own in self.facts.items() if own["built_rules"]]
        return with_parts(relations, self.chosen, asked)

    def record(self, parts: Sequence[Relation]) -> dict[str, Any]:
        """What `run.json` says of it: the rules to beat, and the names of the sums beside."""
        return {"simple_rules": self.facts, "parts": [r.id for r in parts if is_part(r.name)]}


def survey(
    windows: Sequence[Window],
    relations: Sequence[Relation],
    further: Iterable[Window] = (),
    built: Iterable[Window] = (),
    *,
    room: int = 0,
) -> Survey:
    """Choose the simple rules to beat, and what else to read for the sake of contested queries.

    Args:
        windows: natural text, or a large part of it, and pair sentences.
        relations: what is scored.
        further: natural text beyond that, of which windows with contested queries are taken that
            are still wanted, cut to the sentences around these; they count for them alone.
        built: sentences made for contested queries, likewise, where natural text has too few.
        room: tokens of further text that may be taken, and half as many of made sentences.
    """
    asked = [relation for relation in relations if relation.baseline is not None]
    rare = [relation for relation in asked if EXCERPT in relation.stimuli]
    beside, further = first_excerpts(rare, windows, further, room // 4)
    windows = [*windows, *beside]
    counts = _count(asked, windows, {})
    chosen = {
        relation.id: counts[relation.id].choose(relation)
        for relation in asked
        if counts[relation.id].queries.sum()
    }
    asked = [relation for relation in asked if relation.id in chosen]
    contested = _count(asked, windows, chosen)
    hopeful = [
        r
        for r in asked
        if r.rule.taggable
        and "text" in r.stimuli
        and _least(r) <= contested[r.id].queries.sum() < ENOUGH
    ]
    more = take_contested(
        hopeful, _numbers(contested), chosen, further, room - sum(map(len, beside))
    )
    for part, relation in product(more, asked):
        found = contested_pairs(relation, part, chosen[relation.id])
        contested[relation.id].add(relation, part, found)
    built_counts = _count(asked, windows, chosen, BUILT)
    few = [r for r in asked if contested[r.id].queries.sum() < MIN_QUERIES]
    made = take_contested(few, _numbers(built_counts), chosen, built, room // 2)
    for part, relation in product(made, asked):
        found = contested_pairs(relation, part, chosen[relation.id])
        built_counts[relation.id].add(relation, part, found)
    facts = {
        relation.id: {
            "baseline": counts[relation.id].best_rule(chosen[relation.id]),
            "baseline_rate": counts[relation.id].rate(relation, chosen[relation.id]),
            "best_offset_rate": counts[relation.id].best_offset_rate(),
            "contested_queries": int(contested[relation.id].queries.sum()),
            "natural_rules": frontier(counts[relation.id], contested[relation.id], relation),
            "built_rules": frontier(counts[relation.id], built_counts[relation.id], relation),
        }
        for relation in asked
    }
    return Survey(chosen, facts, (*beside, *more), tuple(made))


def _least(relation: Relation) -> int:
    return 0 if relation.baseline is not None and relation.baseline.always_sought else HOPE


def frontier(counts: Counts, contested: Counts, relation: Relation) -> list[list[float]]:
    """The simple rules that no other beats: `[rate, rate at contested queries]` of each.

    The first falls and the second rises. A head that follows a rule of them knows no more than it:
    "the verb before the nearest" is right where "the nearest verb" is wrong, and nowhere else.
    """
    if not contested.queries.sum():
        return []
    overall, there = (each.by_class(relation) for each in (counts, contested))
    # of one rule for all classes of words, of the best of each class, and of each class there
    rates = [np.stack([overall.sum(0), there.sum(0)])]
    if relation.baseline is not None and relation.baseline.by_class:
        every = np.arange(CLASS_COUNT)
        for best in (overall.argmax(-1), there.argmax(-1)):
            rates.append(np.array([[own[every, best].sum()] for own in (overall, there)]))
    overall, there = np.concatenate(rates, axis=1).round(6)
    found: list[list[float]] = []
    for rule in np.lexsort((-there, -overall)).tolist():
        if not found or there[rule] > found[-1][1]:
            found.append([float(overall[rule]), float(there[rule])])
    return found


def _count(
    relations: Sequence[Relation],
    windows: Iterable[Window],
    rules: dict[str, Chosen],
    part: str = NATURAL,
) -> dict[str, Counts]:
    """Of contested queries alone, natural or built, where rules are given."""
    counts = {relation.id: Counts() for relation in relations}
    for window in windows:
        for relation in relations:
            rule = rules.get(relation.id)
            if window.stimulus not in (relation.stimuli if rule is None else STIMULI[part]):
                continue
            found = (
                relation.pairs(window) if rule is None else contested_pairs(relation, window, rule)
            )
            counts[relation.id].add(relation, window, found)
    return counts


def _numbers(counts: dict[str, Counts]) -> dict[str, int]:
    """The queries of each relation."""
    return {name: int(each.queries.sum()) for name, each in counts.items()}
