"""Baseline heuristics that fit a text best, and the queries where they are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.contested_sampling import MAX_CONTESTED, first_excerpts, take_contested
from headscope.relations.contested import (
    ChosenBaseline,
    contested_pairs,
    contested_stimuli,
    rule_picks,
    with_parts,
)
from headscope.relations.effects import of_attention, sum_names
from headscope.relations.heuristics import (
    ALL_RULES,
    CLASS_COUNT,
    EARLIER,
    OFFSETS,
    query_class,
)
from headscope.relations.pairs import Pairs
from headscope.relations.relation import BUILT, MIN_QUERIES, NATURAL, Relation, is_part
from headscope.stimuli.text import EXCERPT, TEXT

HOPE = 3
"""Contested queries that a text must hold for more to be looked for: of what is rarer than that too
few would be found."""
FEWEST = 20
"""Queries of a class for a rule of its own; else that of all classes is taken."""


@dataclass(eq=False)
class BaselineHits:
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

    def choose(self, relation: Relation) -> ChosenBaseline:
        """The rule that is right most often, for each class of words that has enough queries.

        It is chosen on the whole text, as that which fits it best: no rule is harder to beat. Both
        halves of the documents are held against the same, else they would differ by chance.
        """
        right = self._allowed(relation)
        rule = np.full(CLASS_COUNT, right.sum(0).argmax())
        if relation.baseline is not None and relation.baseline.by_class:
            rule = np.where(self.queries >= FEWEST, right.argmax(-1), rule)
        return ChosenBaseline(rule)

    def rate(self, relation: Relation, heuristic: ChosenBaseline) -> float:
        """Share of the queries that the chosen rules get right."""
        right = self._allowed(relation)[np.arange(CLASS_COUNT), heuristic.rule]
        return float(right.clip(0).sum() / self.queries.sum())

    def best_offset_rate(self) -> float:
        """The same of rules that are a fixed distance."""
        back, forward = (slice(start, start + OFFSETS) for start in (1, len(EARLIER)))
        best = max(self.right[:, offsets].sum(0).max() for offsets in (back, forward))
        return float(best / self.queries.sum())

    def best_rule(self, heuristic: ChosenBaseline) -> str:
        """The name of the rule that the most queries are held against."""
        queries = np.bincount(heuristic.rule, weights=self.queries, minlength=len(ALL_RULES))
        return ALL_RULES[int(queries.argmax())]

    def by_class(self, relation: Relation) -> Float[ndarray, "class rule"]:
        """The share of all queries that each rule gets right, class by class."""
        return np.asarray(self._allowed(relation).clip(0) / self.queries.sum())

    def _allowed(self, relation: Relation) -> Int[ndarray, "class rule"]:
        right = self.right.copy()
        baseline = relation.baseline
        if baseline is not None:
            right[..., [ALL_RULES.index(name) for name in baseline.without]] = -1
            if baseline.find is None:
                right[..., 0] = -1
        return right


@dataclass(frozen=True, eq=False)
class FittedBaselines:
    """The simple rules to beat on a text, and what they get right of it."""

    heuristics: dict[str, ChosenBaseline]
    """By relation; those that have simple rules and queries."""
    facts: dict[str, dict[str, Any]]
    """By relation: `baseline`, the best rule's name, `baseline_rate`, `best_offset_rate`, the
    number of `contested_queries` in natural text, and the `frontier` at these, `natural_rules`,
    and at those of sentences made for the purpose, `built_rules`."""
    contested_text: tuple[Window, ...] = ()
    """Natural text that is read for its contested queries alone."""
    built: tuple[Window, ...] = ()
    """Sentences made for the purpose, likewise."""

    def parts(self, relations: Sequence[Relation]) -> list[Relation]:
        """The relations and what is summed beside them; see `with_parts`."""
        in_built = [name for name, facts in self.facts.items() if facts["built_rules"]]
        return with_parts(relations, self.heuristics, in_built)

    def record(self, relations: Sequence[Relation]) -> dict[str, Any]:
        """Fields of the run's record: the baselines, and the names of the sums beside relations."""
        scored = {r.id for r in of_attention(relations) if not is_part(r.name)}
        parts = [name for name in sum_names(relations) if name not in scored]
        return {"simple_rules": self.facts, "parts": parts}


def fit_baselines(
    windows: Sequence[Window],
    relations: Sequence[Relation],
    remaining_text: Iterable[Window] = (),
    built: Iterable[Window] = (),
    *,
    budget: int = 0,
) -> FittedBaselines:
    """Choose the simple rules to beat, and what else to read for the sake of contested queries.

    Args:
        windows: natural text, or a large part of it, and pair sentences.
        relations: what is scored.
        remaining_text: natural text beyond that, of which windows with contested queries are taken
            that are still needed, cut to the sentences around these; they count for them alone.
        built: sentences made for contested queries, likewise, where natural text has too few.
        budget: tokens of further text that may be taken, and half as many of made sentences.
    """
    tested = [relation for relation in relations if relation.baseline is not None]
    rare = [relation for relation in tested if EXCERPT.name in relation.stimuli]
    excerpts, remaining_text = first_excerpts(rare, windows, remaining_text, budget // 4)
    windows = [*windows, *excerpts]
    counts = _count(tested, windows, {})
    heuristics = {
        relation.id: counts[relation.id].choose(relation)
        for relation in tested
        if counts[relation.id].queries.sum()
    }
    tested = [relation for relation in tested if relation.id in heuristics]
    contested = _count(tested, windows, heuristics)
    hopeful = [
        r
        for r in tested
        if r.rule.taggable
        and TEXT.name in r.stimuli
        and _least(r) <= contested[r.id].queries.sum() < MAX_CONTESTED
    ]
    natural = take_contested(
        hopeful, _numbers(contested), heuristics, remaining_text, budget - sum(map(len, excerpts))
    )
    for part, relation in product(natural, tested):
        targets = contested_pairs(relation, part, heuristics[relation.id])
        contested[relation.id].add(relation, part, targets)
    built_counts = _count(tested, windows, heuristics, BUILT)
    undecided = [r for r in tested if contested[r.id].queries.sum() < MIN_QUERIES]
    sentences = take_contested(undecided, _numbers(built_counts), heuristics, built, budget // 2)
    for part, relation in product(sentences, tested):
        targets = contested_pairs(relation, part, heuristics[relation.id])
        built_counts[relation.id].add(relation, part, targets)
    facts = {
        relation.id: {
            "baseline": counts[relation.id].best_rule(heuristics[relation.id]),
            "baseline_rate": counts[relation.id].rate(relation, heuristics[relation.id]),
            "best_offset_rate": counts[relation.id].best_offset_rate(),
            "contested_queries": int(contested[relation.id].queries.sum()),
            "natural_rules": frontier(counts[relation.id], contested[relation.id], relation),
            "built_rules": frontier(counts[relation.id], built_counts[relation.id], relation),
        }
        for relation in tested
    }
    return FittedBaselines(heuristics, facts, (*excerpts, *natural), tuple(sentences))


def _least(relation: Relation) -> int:
    return 0 if relation.baseline is not None and relation.baseline.always_sought else HOPE


def frontier(
    counts: BaselineHits, contested: BaselineHits, relation: Relation
) -> list[list[float]]:
    """The simple rules that no other beats: `[rate, rate at contested queries]` of each.

    The first falls and the second rises. A head that follows a rule of them knows no more than it:
    "the verb before the nearest" is right where "the nearest verb" is wrong, and nowhere else.
    """
    if not contested.queries.sum():
        return []
    overall, at_contested = (count.by_class(relation) for count in (counts, contested))
    # of one rule for all classes of words, of the best of each class, and of each class there
    rates = [np.stack([overall.sum(0), at_contested.sum(0)])]
    if relation.baseline is not None and relation.baseline.by_class:
        every = np.arange(CLASS_COUNT)
        for best in (overall.argmax(-1), at_contested.argmax(-1)):
            rates.append(
                np.array([[rates_of[every, best].sum()] for rates_of in (overall, at_contested)])
            )
    overall, at_contested = np.concatenate(rates, axis=1).round(6)
    frontier: list[list[float]] = []
    for rule in np.lexsort((-at_contested, -overall)).tolist():
        if not frontier or at_contested[rule] > frontier[-1][1]:
            frontier.append([float(overall[rule]), float(at_contested[rule])])
    return frontier


def _count(
    relations: Sequence[Relation],
    windows: Iterable[Window],
    rules: dict[str, ChosenBaseline],
    part: str = NATURAL,
) -> dict[str, BaselineHits]:
    """Counts by relation; where rules are given, of contested queries, natural or built."""
    counts = {relation.id: BaselineHits() for relation in relations}
    for window in windows:
        for relation in relations:
            rule = rules.get(relation.id)
            if window.stimulus not in (
                relation.stimuli if rule is None else contested_stimuli(part)
            ):
                continue
            targets = (
                relation.pairs(window) if rule is None else contested_pairs(relation, window, rule)
            )
            counts[relation.id].add(relation, window, targets)
    return counts


def _numbers(counts: dict[str, BaselineHits]) -> dict[str, int]:
    return {name: int(count.queries.sum()) for name, count in counts.items()}
