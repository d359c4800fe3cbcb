"""Baselines that fit a text best, and the rates that baselines reach at hard and easy queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.baselines import ALL_BASELINES, CLASS_COUNT, EARLIER, OFFSETS
from headscope.relations.effects import effects_among, of_attention, sum_names
from headscope.relations.hard_queries import (
    ChosenBaseline,
    baseline_picks,
    target_classes,
    with_parts,
)
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Relation, is_part
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.challenge import CHALLENGE

FEWEST = 20
"""Queries of a class for a baseline of its own; else that of all classes is taken."""
MIN_SHARE = 0.05
"""Share of targets from which on the words of a class are candidates."""


class BaselineHits:
    """Queries of a relation, and how many of them each baseline gets right."""

    def __init__(self, relation: Relation) -> None:
        self.relation, self._baseline = relation, relation.baseline or Baseline()
        self.right: Int[ndarray, "class baseline"] = np.zeros(
            (CLASS_COUNT, len(ALL_BASELINES)), np.int64
        )
        self.queries: Int[ndarray, " class"] = np.zeros(CLASS_COUNT, np.int64)
        self.targets: Int[ndarray, " class"] = np.zeros(CLASS_COUNT, np.int64)
        """Number of targets by the class of the word that they belong to."""

    @property
    def count(self) -> int:
        """Number of queries."""
        return int(self.queries.sum())

    def add(self, window_pairs: WindowPairs, targets: Pairs) -> None:
        """Count the queries of a window's targets."""
        if not len(targets):
            return
        classes = window_pairs.query_class
        present = np.flatnonzero(np.bincount(classes[targets.query]))
        right = baseline_picks(self.relation, window_pairs, targets.query) == targets.key
        one_hot = classes[targets.query] == present[:, None]
        # a product of small whole numbers, which single precision holds exactly
        counted = (one_hot.astype(np.float32) @ right.T.astype(np.float32)).astype(int)
        # the windows of causal models have only baselines that look back
        self.right[present, : len(right)] += counted
        self.queries += np.bincount(classes[targets.queries], minlength=CLASS_COUNT)
        self.targets += target_classes(window_pairs.window, targets)

    def choose(self) -> ChosenBaseline:
        """The baseline that is right most often, for each class of words that has enough queries.

        It is chosen on the whole text. Both halves of the documents are compared with the same
        baseline, else they would differ by chance.
        """
        right = self._allowed()
        baseline = np.full(CLASS_COUNT, right.sum(0).argmax())
        if self._baseline.by_class:
            baseline = np.where(self.queries >= FEWEST, right.argmax(-1), baseline)
        return ChosenBaseline(baseline, self.targets >= MIN_SHARE * self.targets.sum())

    def facts(
        self, choice: ChosenBaseline, hard: BaselineHits, easy: BaselineHits
    ) -> dict[str, Any]:
        """Facts of the relation; see `FittedBaselines.facts`."""
        classes, baselines = np.arange(CLASS_COUNT), len(ALL_BASELINES)
        best = np.bincount(choice.baseline, weights=self.queries, minlength=baselines).argmax()
        right = self._allowed()[classes, choice.baseline].clip(0).sum()
        back, forward = (slice(start, start + OFFSETS) for start in (1, len(EARLIER)))
        offset = max(self.right[:, offsets].sum(0).max() for offsets in (back, forward))
        return {
            "baseline": ALL_BASELINES[int(best)],
            "baseline_rate": float(right / self.queries.sum()),
            "best_offset_rate": float(offset / self.queries.sum()),
            "hard_queries": hard.count,
            "baselines": self._frontier(easy, hard),
        }

    def _frontier(self, easy: BaselineHits, hard: BaselineHits) -> list[list[float]]:
        """Rates at easy and at hard queries that no baseline, and no mixture of two, exceeds.

        Corners of the upper convex hull: the first number falls and the second rises.
        """
        if not hard.count:
            return []
        # of one baseline for all classes of words, and of the best of each class
        rates = [np.stack([part._rates().sum(0) for part in (easy, hard)], axis=1)]
        if self._baseline.by_class:
            every = np.arange(CLASS_COUNT)
            for best in (self._rates().argmax(-1), hard._rates().argmax(-1)):
                rates.append(
                    np.array([[part._rates()[every, best].sum() for part in (easy, hard)]])
                )
        corners: list[list[float]] = upper_hull(np.concatenate(rates)).round(6).tolist()
        return corners

    def _rates(self) -> Float[ndarray, "class baseline"]:
        """The share of all queries that each baseline gets right, class by class."""
        return np.asarray(self._allowed().clip(0) / max(self.queries.sum(), 1))

    def _allowed(self) -> Int[ndarray, "class baseline"]:
        right = self.right.copy()
        right[..., [ALL_BASELINES.index(name) for name in self._baseline.without]] = -1
        if self._baseline.find is None:
            right[..., 0] = -1
        return right


def upper_hull(points: Float[ndarray, "point 2"]) -> Float[ndarray, "corner 2"]:
    """Corners of the upper right convex hull of points, the first coordinate falling.

    >>> upper_hull(np.array([[1.0, 0.0], [0.0, 0.8], [0.5, 0.3], [0.4, 0.6]])).tolist()
    [[1.0, 0.0], [0.4, 0.6], [0.0, 0.8]]
    """
    corners: list[Float[ndarray, " 2"]] = []
    for point in points[np.lexsort((-points[:, 1], -points[:, 0]))]:
        if corners and point[1] <= corners[-1][1]:
            continue
        while len(corners) > 1:
            (x0, y0), (x1, y1), (x2, y2) = corners[-2], corners[-1], point
            if (y1 - y0) * (x0 - x2) > (y2 - y0) * (x0 - x1):
                break
            corners.pop()
        corners.append(point)
    return np.array(corners)


@dataclass(frozen=True, eq=False)
class FittedBaselines:
    """The baselines of relations on a text, and the rates of all baselines."""

    baselines: dict[str, ChosenBaseline]
    """Baselines by relation; relations without a baseline or a query are absent."""
    facts: dict[str, dict[str, Any]]
    """Facts by relation: `baseline`, the best one's name, `baseline_rate`, `best_offset_rate`, the
    number of `hard_queries`, and `baselines`, the rates at easy and at hard queries that no
    baseline exceeds."""

    def parts(self, relations: Sequence[Relation]) -> list[Relation]:
        """The relations and what is summed beside them; see `with_parts`. Effects are last."""
        return [*with_parts(of_attention(relations), self.baselines), *effects_among(relations)]

    def record(self, relations: Sequence[Relation]) -> dict[str, Any]:
        """Fields of the run's record: the baselines, and the names of the sums beside relations."""
        scored = {r.id for r in of_attention(relations) if not is_part(r.name)}
        parts = [name for name in sum_names(relations) if name not in scored]
        return {"baselines": self.facts, "parts": parts}


def fit_baselines(
    windows: Sequence[Window], relations: Sequence[Relation], challenge: Sequence[Window] = ()
) -> FittedBaselines:
    """Choose the baseline of each relation, and measure all baselines at hard and easy queries.

    Args:
        windows: natural text, or a large part of it, and other stimuli.
        relations: relations of the run.
        challenge: windows that are read only for hard and easy queries.
    """
    tested = [relation for relation in relations if relation.baseline is not None]
    hits = {relation.id: BaselineHits(relation) for relation in tested}
    for window in windows:
        window_pairs = WindowPairs(window)
        for relation in tested:
            if window.stimulus in relation.stimuli:
                hits[relation.id].add(window_pairs, window_pairs.targets(relation))
    tested = [relation for relation in tested if hits[relation.id].count]
    choices = {relation.id: hits[relation.id].choose() for relation in tested}
    hard = {relation.id: BaselineHits(relation) for relation in tested}
    easy = {relation.id: BaselineHits(relation) for relation in tested}
    # a second pass: queries are hard or easy by the baselines that the first one chose
    for window in (*windows, *challenge):
        window_pairs = WindowPairs(window)
        for relation in tested:
            if window.stimulus in (*relation.stimuli, CHALLENGE.name):
                compared = window_pairs.compared(relation, choices[relation.id])
                hard[relation.id].add(window_pairs, compared.hard)
                easy[relation.id].add(window_pairs, compared.easy)
    facts = {
        name: hits[name].facts(baseline, hard[name], easy[name])
        for name, baseline in choices.items()
    }
    return FittedBaselines(choices, facts)
