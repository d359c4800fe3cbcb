"""Baseline heuristics that fit a text best, and the queries where they are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from headscope.relations.relation import (
    MIN_QUERIES,
    NATURAL,
    SYNTHETIC,
    Baseline,
    Relation,
    is_part,
)
from headscope.stimuli.natural_text import EXCERPT, TEXT

HOPE = 3
"""Contested queries that a text must hold for more to be looked for: of what is rarer than that too
few would be found."""
FEWEST = 20
"""Queries of a class for a rule of its own; else that of all classes is taken."""


class BaselineHits:
    """Queries of a relation, and how many of them each simple rule gets right."""

    def __init__(self, relation: Relation) -> None:
        self.relation, self._baseline = relation, relation.baseline or Baseline()
        self.right: Int[ndarray, "class rule"] = np.zeros((CLASS_COUNT, len(ALL_RULES)), np.int64)
        self.queries: Int[ndarray, " class"] = np.zeros(CLASS_COUNT, np.int64)

    @property
    def count(self) -> int:
        """Number of queries."""
        return int(self.queries.sum())

    def add(self, window: Window, targets: Pairs) -> None:
        """Count the queries of a window's targets."""
        if not len(targets):
            return
        classes = query_class(window)
        right = rule_picks(self.relation, window)[:, targets.query] == targets.key
        one_hot = classes[targets.query][:, None] == np.arange(CLASS_COUNT)
        # a product of small whole numbers, which single precision holds exactly
        counted = (right.astype(np.float32) @ one_hot.astype(np.float32)).T.astype(int)
        # of a causal model's window only rules that look back
        self.right[:, : len(right)] += counted
        self.queries += np.bincount(classes[targets.queries], minlength=CLASS_COUNT)

    def choose(self) -> ChosenBaseline:
        """The rule that is right most often, for each class of words that has enough queries.

        It is chosen on the whole text, as that which fits it best: no rule is harder to beat. Both
        halves of the documents are held against the same, else they would differ by chance.
        """
        right = self._allowed()
        rule = np.full(CLASS_COUNT, right.sum(0).argmax())
        if self._baseline.by_class:
            rule = np.where(self.queries >= FEWEST, right.argmax(-1), rule)
        return ChosenBaseline(rule)

    def facts(
        self, heuristic: ChosenBaseline, natural: BaselineHits, synthetic: BaselineHits
    ) -> dict[str, Any]:
        """Facts of the relation; see `FittedBaselines.facts`.

        Args:
            heuristic: its simple rules.
            natural: hits at contested queries of natural text.
            synthetic: hits at those of synthetic sentences.
        """
        classes, rules = np.arange(CLASS_COUNT), len(ALL_RULES)
        best = np.bincount(heuristic.rule, weights=self.queries, minlength=rules).argmax()
        right = self._allowed()[classes, heuristic.rule].clip(0).sum()
        back, forward = (slice(start, start + OFFSETS) for start in (1, len(EARLIER)))
        offset = max(self.right[:, offsets].sum(0).max() for offsets in (back, forward))
        return {
            "baseline": ALL_RULES[int(best)],
            "baseline_rate": float(right / self.queries.sum()),
            "best_offset_rate": float(offset / self.queries.sum()),
            "contested_queries": natural.count,
            "natural_rules": self._frontier(natural),
            "synthetic_rules": self._frontier(synthetic),
        }

    def _frontier(self, contested: BaselineHits) -> list[list[float]]:
        """The simple rules that no other beats: `[rate, rate at contested queries]` of each.

        The first falls and the second rises. A head that follows a rule of them knows no more than
        it: "the verb before the nearest" is right where "the nearest verb" is wrong, and nowhere
        else.
        """
        if not contested.count:
            return []
        overall, at_contested = self._rates(), contested._rates()
        # of one rule for all classes of words, of the best of each class, and of each class there
        rates = [np.stack([overall.sum(0), at_contested.sum(0)])]
        if self._baseline.by_class:
            every = np.arange(CLASS_COUNT)
            for best in (overall.argmax(-1), at_contested.argmax(-1)):
                both = [rates_of[every, best].sum() for rates_of in (overall, at_contested)]
                rates.append(np.array(both)[:, None])
        overall, at_contested = np.concatenate(rates, axis=1).round(6)
        frontier: list[list[float]] = []
        for rule in np.lexsort((-at_contested, -overall)).tolist():
            if not frontier or at_contested[rule] > frontier[-1][1]:
                frontier.append([float(overall[rule]), float(at_contested[rule])])
        return frontier

    def _rates(self) -> Float[ndarray, "class rule"]:
        """The share of all queries that each rule gets right, class by class."""
        return np.asarray(self._allowed().clip(0) / self.queries.sum())

    def _allowed(self) -> Int[ndarray, "class rule"]:
        right = self.right.copy()
        right[..., [ALL_RULES.index(name) for name in self._baseline.without]] = -1
        if self._baseline.find is None:
            right[..., 0] = -1
        return right


@dataclass(frozen=True, eq=False)
class FittedBaselines:
    """The simple rules to beat on a text, and what they get right of it."""

    heuristics: dict[str, ChosenBaseline]
    """Simple rules by relation, of relations that have some and have queries."""
    facts: dict[str, dict[str, Any]]
    """Facts by relation: `baseline`, the best rule's name, `baseline_rate`, `best_offset_rate`, the
    number of `contested_queries` in natural text, and the rules that no other beats at these,
    `natural_rules`, and at those of synthetic sentences, `synthetic_rules`."""
    contested_text: tuple[Window, ...] = ()
    """Natural text that is read for its contested queries alone."""
    synthetic_sentences: tuple[Window, ...] = ()
    """Synthetic sentences, likewise."""

    def parts(self, relations: Sequence[Relation]) -> list[Relation]:
        """The relations and what is summed beside them; see `with_parts`."""
        in_synthetic = [name for name, facts in self.facts.items() if facts["synthetic_rules"]]
        return with_parts(relations, self.heuristics, in_synthetic)

    def record(self, relations: Sequence[Relation]) -> dict[str, Any]:
        """Fields of the run's record: the baselines, and the names of the sums beside relations."""
        scored = {r.id for r in of_attention(relations) if not is_part(r.name)}
        parts = [name for name in sum_names(relations) if name not in scored]
        return {"simple_rules": self.facts, "parts": parts}


def fit_baselines(
    windows: Sequence[Window],
    relations: Sequence[Relation],
    remaining_text: Iterable[Window] = (),
    synthetic_sentences: Iterable[Window] = (),
    *,
    budget: int = 0,
) -> FittedBaselines:
    """Choose the simple rules to beat, and what else to read for the sake of contested queries.

    Args:
        windows: natural text, or a large part of it, and pair sentences.
        relations: what is scored.
        remaining_text: natural text beyond that, of which windows with contested queries are taken
            that are still needed, cut to the sentences around these; they count for them alone.
        synthetic_sentences: synthetic sentences for contested queries, likewise, where natural text
            has too few.
        budget: tokens of extra text that may be taken, and half as many of synthetic sentences.
    """
    tested = [relation for relation in relations if relation.baseline is not None]
    rare = [relation for relation in tested if EXCERPT.name in relation.stimuli]
    excerpts, remaining_text = first_excerpts(rare, windows, remaining_text, budget // 4)
    windows = [*windows, *excerpts]
    hits = {relation.id: BaselineHits(relation) for relation in tested}
    for window, relation in product(windows, tested):
        if window.stimulus in relation.stimuli:
            hits[relation.id].add(window, relation.pairs(window))
    tested = [relation for relation in tested if hits[relation.id].count]
    rules = {relation.id: hits[relation.id].choose() for relation in tested}
    in_natural = _contested_hits(tested, windows, rules, NATURAL)
    hopeful = [relation for relation in tested if _is_hopeful(in_natural[relation.id])]
    left_over = budget - sum(map(len, excerpts))
    more_text = take_contested(hopeful, _counts(in_natural), rules, remaining_text, left_over)
    _add_contested(in_natural, more_text, rules)
    in_synthetic = _contested_hits(tested, windows, rules, SYNTHETIC)
    undecided = [relation for relation in tested if in_natural[relation.id].count < MIN_QUERIES]
    sentences = take_contested(
        undecided, _counts(in_synthetic), rules, synthetic_sentences, budget // 2
    )
    _add_contested(in_synthetic, sentences, rules)
    facts = {
        name: hits[name].facts(rule, in_natural[name], in_synthetic[name])
        for name, rule in rules.items()
    }
    return FittedBaselines(rules, facts, (*excerpts, *more_text), tuple(sentences))


def _is_hopeful(contested: BaselineHits) -> bool:
    """True if more natural text is searched for contested queries of a relation."""
    relation, baseline = contested.relation, contested.relation.baseline
    least = 0 if baseline is not None and baseline.always_sought else HOPE
    is_of_text = relation.rule.taggable and TEXT.name in relation.stimuli
    return is_of_text and least <= contested.count < MAX_CONTESTED


_Rules = dict[str, ChosenBaseline]
_Hits = dict[str, BaselineHits]


def _contested_hits(
    relations: Sequence[Relation], windows: Iterable[Window], rules: _Rules, part: str
) -> _Hits:
    """Counts of natural or synthetic contested queries, by relation."""
    hits = {relation.id: BaselineHits(relation) for relation in relations}
    windows = [window for window in windows if window.stimulus in contested_stimuli(part)]
    _add_contested(hits, windows, rules)
    return hits


def _add_contested(hits: _Hits, windows: Iterable[Window], rules: _Rules) -> None:
    for window, (name, counts) in product(windows, hits.items()):
        counts.add(window, contested_pairs(counts.relation, window, rules[name]))


def _counts(hits: _Hits) -> dict[str, int]:
    return {name: counts.count for name, counts in hits.items()}
