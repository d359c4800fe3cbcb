"""Queries that baselines get right: of all queries, and of hard and easy ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import betaincinv

from headscope.relations.baselines import (
    ALL_BASELINES,
    CLASS_COUNT,
    NUMBER_OF,
    OFFSET_BASELINES,
    OFFSETS_AHEAD,
)
from headscope.relations.hard_queries import ChosenBaseline, baseline_picks, target_classes
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.relations.word_rows import UPOS

FEWEST = 20
"""Queries of a class for a baseline of its own; else that of all classes is taken."""
MIN_SHARE = 0.05
"""Share of targets from which on the words of a class are candidates."""
FEW_BEST = 8
"""Baselines of which chains are formed: those that are right at most hard queries, and as many that
are right at most queries of both kinds."""
_ALWAYS_SECOND = ("nearest-of-target-classes", "nearest-of-target-classes-on-either-side")
"""Baselines that stand second in a chain with every other one."""


def forbidden_baselines(relation: Relation) -> list[int]:
    """Numbers of the baselines that are equivalent to a relation, or that it lacks."""
    baseline = relation.baseline or Baseline()
    numbers = [NUMBER_OF[name] for name in sorted(baseline.without)]
    if baseline.find is None:
        numbers.append(NUMBER_OF["own"])
    return numbers


class BaselineHits:
    """Queries of a relation, and how many of them each baseline gets right."""

    def __init__(self, relation: Relation, target_classes: tuple[str, ...] = ()) -> None:
        self.relation = relation
        self._target_classes = target_classes
        self._forbidden = forbidden_baselines(relation)
        self.by_class = relation.baseline is None or relation.baseline.by_class
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
        class_of_query = classes[targets.query]
        present = np.flatnonzero(np.bincount(class_of_query))
        pick = baseline_picks(self.relation, window_pairs, targets.query, self._target_classes)
        right = pick == targets.key
        one_hot = class_of_query == present[:, None]
        # a product of small whole numbers, which single precision holds exactly
        counted = (one_hot.astype(np.float32) @ right.T.astype(np.float32)).astype(int)
        # the windows of causal models have only baselines that look back
        self.right[present, : len(right)] += counted
        self.queries += np.bincount(classes[targets.queries], minlength=CLASS_COUNT)
        self.targets += target_classes(window_pairs.window, targets)

    def choose(self, *, without: Sequence[str] = (), fewest: int = FEWEST) -> ChosenBaseline:
        """The baseline that is right most often, for each class of words that has enough queries.

        It is chosen on the whole text. Both halves of the documents are compared with the same
        baseline, else they would differ by chance.

        Args:
            without: names of further baselines that are not chosen.
            fewest: queries of a class for a baseline of its own.
        """
        right = self.allowed(without)
        best = right.sum(0).argmax()
        baseline = np.full(CLASS_COUNT, best)
        if self.by_class:
            has_its_own = self.queries >= fewest
            baseline = np.where(has_its_own, right.argmax(-1), baseline)
        is_candidate = self.targets >= MIN_SHARE * self.targets.sum()
        return ChosenBaseline(baseline, is_candidate, self.classes_of_targets())

    def classes_of_targets(self) -> tuple[str, ...]:
        """Parts of speech that a share of the targets has, the most frequent first."""
        shares = self.targets[: len(UPOS)] / max(self.targets.sum(), 1)
        order = np.argsort(-shares, kind="stable")
        return tuple(UPOS[number] for number in order.tolist() if shares[number] >= MIN_SHARE)

    def most_used(self, choice: ChosenBaseline) -> str:
        """The name of the baseline that a choice takes at most queries."""
        uses = np.bincount(choice.baseline, self.queries, minlength=len(ALL_BASELINES))
        return ALL_BASELINES[int(uses.argmax())]

    def rate(self, choice: ChosenBaseline) -> float:
        """Share of the queries that a choice gets right."""
        right = self.allowed()[np.arange(CLASS_COUNT), choice.baseline]
        return float(right.clip(0).sum() / max(self.count, 1))

    def best(self, without: Sequence[str] = ()) -> tuple[str, float]:
        """The single baseline that is right most often, and its rate."""
        right = self.allowed(without).sum(0)
        number = int(right.argmax())
        return ALL_BASELINES[number], float(right[number] / max(self.count, 1))

    def best_offset_rate(self) -> float:
        """Share of the queries that the best offset gets right, on either side."""
        offsets = (*OFFSET_BASELINES, *OFFSETS_AHEAD)
        numbers = [NUMBER_OF[name] for name in offsets]
        right = self.right[:, numbers].sum(0)
        return float(right.max() / max(self.count, 1))

    def allowed(self, without: Sequence[str] = ()) -> Int[ndarray, "class baseline"]:
        """Numbers of right queries, negative for baselines that are equivalent to the relation."""
        right = self.right.copy()
        right[:, self._forbidden] = -1
        right[:, [NUMBER_OF[name] for name in without]] = -1
        return right


@dataclass(frozen=True, eq=False)
class _Answers:
    """What baselines do at queries; both masks are packed along the baselines."""

    right: ndarray
    picks_none: ndarray
    query_class: Int[ndarray, " query"]


class ComparedRates:
    """Rates of baselines at the hard and the easy queries of a relation.

    Beside single baselines these are chains: a first baseline, and where it picks no key another
    one, and where both pick none the relation's own choice. No mixture of baselines reaches a
    chain, whose parts decide at different queries.

    Args:
        relation: the relation.
        choice: its baseline, which tells hard queries from easy ones.
        only_compared: whether a pick decides only if it is a target or a candidate, the keys whose
            attention is compared. A head that attends most to the word before, and next to the
            nearest verb, is right at a noun's adverb, and at a verb's behind another noun, which is
            no candidate there. A chain that ends at that noun is wrong at one of them.
    """

    def __init__(
        self, relation: Relation, choice: ChosenBaseline, *, only_compared: bool = False
    ) -> None:
        self.relation = relation
        self.choice = choice
        self.only_compared = only_compared
        self._answers: dict[str, list[_Answers]] = {"easy": [], "hard": []}
        self._baselines = 0
        """Number of baselines in windows of this kind of attention."""

    def add(self, window_pairs: WindowPairs) -> None:
        """Keep what baselines do at the compared queries of a window."""
        compared = window_pairs.compared(self.relation, self.choice)
        for side, targets in (("easy", compared.easy), ("hard", compared.hard)):
            if not len(targets):
                continue
            # what each baseline picks at the queries, and whether it is a target
            queries = targets.queries
            classes = self.choice.target_classes
            pick = baseline_picks(self.relation, window_pairs, queries, classes)
            self._baselines = len(pick)
            column = np.searchsorted(queries, targets.query)
            is_target = pick[:, column] == targets.key
            # the targets of a query stand side by side, and every query has one
            order = np.argsort(column, kind="stable")
            starts = np.searchsorted(column[order], np.arange(len(queries)))
            right = np.logical_or.reduceat(is_target[:, order], starts, axis=1)
            decides = pick >= 0
            # as the attention of a head on a word that is not compared decides nothing
            if self.only_compared:
                others = self.choice.other_candidates(self.relation, window_pairs, targets)
                is_compared = np.zeros((len(queries), len(window_pairs.window)), bool)
                is_compared[column, targets.key] = True
                is_compared[np.searchsorted(queries, others.query), others.key] = True
                decides &= is_compared[np.arange(len(queries)), pick]
            # packed along the baselines, as a text has millions of such answers
            answers = _Answers(
                right=np.packbits(right, axis=0),
                picks_none=np.packbits(~decides, axis=0),
                query_class=window_pairs.query_class[queries],
            )
            self._answers[side].append(answers)

    @property
    def hard_count(self) -> int:
        """Number of hard queries."""
        return sum(len(answers.query_class) for answers in self._answers["hard"])

    def frontier(
        self, hits: BaselineHits, reference: Float[ndarray, "point 2"] | None = None
    ) -> Float[ndarray, "corner 2"]:
        """Rates at easy and at hard queries that no baseline, chain, and mixture of two exceeds.

        Corners of the upper convex hull: the first number falls and the second rises. At a few hard
        queries the best of thousands of chains is right by chance. With a reference, its rates
        count, and those of this text only where they are significantly higher.

        Args:
            hits: hits of the baselines at all queries of the text, for the best of each class.
            reference: the frontier of a large text.
        """
        # without hard queries there is nothing to exceed
        if not self.hard_count:
            return np.zeros((0, 2))
        easy = self._side("easy")
        hard = self._side("hard")
        # the choice is right at every easy query and wrong at every hard one
        with_choice = np.stack([_share(easy.right | easy.picks_none), hard.rates()], axis=1)
        every = np.arange(len(hard.right))
        always = [NUMBER_OF[name] for name in _ALWAYS_SECOND]
        always = [number for number in always if number < len(every)]
        # few baselines, as every pair of them is tried: the best at hard queries, and at both kinds
        hard_rates = hard.rates()
        both_rates = hard_rates + easy.rates()
        by_hard = np.argsort(-hard_rates, kind="stable")
        by_both = np.argsort(-both_rates, kind="stable")
        few_best = np.union1d(by_hard[:FEW_BEST], by_both[:FEW_BEST])
        # single baselines, each with the choice behind it, and chains of two
        points = [
            np.stack([easy.rates(), hard.rates()], axis=1),
            with_choice,
            _pairs_of(easy, hard, every, np.array(always)),
            _pairs_of(easy, hard, few_best, few_best),
        ]
        # the best baseline of each class of words
        if hits.by_class:
            for best in (hits.allowed().argmax(-1), hard.best_by_class()):
                rates = [easy.rate_by_class(best), hard.rate_by_class(best)]
                points.append(np.array([rates]))
        corners = upper_hull(np.concatenate(points))
        if reference is None:
            return corners
        # of thousands of chains the best is right by chance, so a lower bound of its rate counts
        easy_rate, hard_rate = corners.T
        low = least_rate(hard_rate, self.hard_count)
        significant = np.stack([easy_rate, low], axis=1)
        return upper_hull(np.concatenate([reference, significant]))

    def _side(self, name: str) -> _Side:
        parts = self._answers[name]
        if not parts:
            empty = np.zeros((self._baselines, 0), bool)
            return _Side(empty, empty, np.zeros(0, np.int64))
        right = np.concatenate([part.right for part in parts], axis=1)
        picks_none = np.concatenate([part.picks_none for part in parts], axis=1)
        side = _Side(
            right=np.unpackbits(right, axis=0, count=self._baselines).astype(bool),
            picks_none=np.unpackbits(picks_none, axis=0, count=self._baselines).astype(bool),
            query_class=np.concatenate([part.query_class for part in parts]),
        )
        # baselines that are equivalent to the relation may not win
        forbidden = forbidden_baselines(self.relation)
        side.right[[number for number in forbidden if number < self._baselines]] = False
        return side


@dataclass(frozen=True, eq=False)
class _Side:
    """What baselines do at all hard, or all easy, queries."""

    right: Bool[ndarray, "baseline query"]
    picks_none: Bool[ndarray, "baseline query"]
    query_class: Int[ndarray, " query"]

    def rates(self) -> Float[ndarray, " baseline"]:
        """The share of the queries that each baseline gets right."""
        return _share(self.right)

    def best_by_class(self) -> Int[ndarray, " class"]:
        """The baseline that is right most often at the queries of each class."""
        best = np.zeros(CLASS_COUNT, np.int64)
        for number in np.unique(self.query_class).tolist():
            is_of_class = self.query_class == number
            right = self.right[:, is_of_class].sum(1)
            best[number] = right.argmax()
        return best

    def rate_by_class(self, baseline: Int[ndarray, " class"]) -> float:
        """The share of the queries at which the baseline of their class is right."""
        queries = np.arange(len(self.query_class))
        right = self.right[baseline[self.query_class], queries]
        return float(right.sum() / max(len(queries), 1))


def _share(right: Bool[ndarray, "*rule query"]) -> Float[ndarray, "*rule"]:
    return np.asarray(right.sum(-1) / max(right.shape[-1], 1))


def _pairs_of(
    easy: _Side, hard: _Side, first: Int[ndarray, " first"], second: Int[ndarray, " second"]
) -> Float[ndarray, "point 2"]:
    """Rates of the chains of each first baseline with each second one, and the choice behind."""
    easy_rates = _chain_rates(easy, first, second, easy.picks_none)
    hard_rates = _chain_rates(hard, first, second, np.zeros_like(hard.picks_none))
    return np.stack([easy_rates, hard_rates], axis=1)


def _chain_rates(
    side: _Side,
    first: Int[ndarray, " first"],
    second: Int[ndarray, " second"],
    right_behind: Bool[ndarray, "baseline query"],
) -> Float[ndarray, " chain"]:
    """Share of the queries that chains get right.

    Args:
        side: hard or easy queries.
        first: the baselines that decide if they pick a key.
        second: the baselines that decide otherwise.
        right_behind: queries at which what follows the second one is right.
    """
    of_first = side.right[first]
    is_open = side.picks_none[first]
    of_second = side.right[second] | right_behind[second]
    # a product of zeros and ones counts the queries at which the second decides and is right
    by_second = is_open.astype(np.float32) @ of_second.T.astype(np.float32)
    by_first = of_first.sum(1)
    right = by_first[:, None] + by_second
    queries = max(side.right.shape[1], 1)
    return np.asarray(right.ravel() / queries)


def least_rate(rate: Float[ndarray, " corner"], queries: int) -> Float[ndarray, " corner"]:
    """The lower end of the 95 % interval of shares of some queries (Clopper and Pearson 1934).

    >>> least_rate(np.array([0.0, 0.5, 1.0]), 10).round(3)
    array([0.   , 0.187, 0.692])
    """
    right = rate * queries
    wrong = queries - right
    return np.asarray(np.where(right > 0, betaincinv(right, wrong + 1, 0.025), 0.0))


def upper_hull(points: Float[ndarray, "point 2"]) -> Float[ndarray, "corner 2"]:
    """Corners of the upper right convex hull of points, the first coordinate falling.

    >>> upper_hull(np.array([[1.0, 0.0], [0.0, 0.8], [0.5, 0.3], [0.4, 0.6]])).tolist()
    [[1.0, 0.0], [0.4, 0.6], [0.0, 0.8]]
    """
    corners: list[Float[ndarray, " 2"]] = []
    x, y = points.T
    order = np.lexsort((-y, -x))
    for point in points[order]:
        # points come from right to left: one below the last corner is exceeded in both rates
        if corners and point[1] <= corners[-1][1]:
            continue
        # a corner counts only above the line from the one before it to this point
        while len(corners) > 1:
            x0, y0 = corners[-2]
            x1, y1 = corners[-1]
            x2, y2 = point
            if (y1 - y0) * (x0 - x2) > (y2 - y0) * (x0 - x1):
                break
            corners.pop()
        corners.append(point)
    return np.array(corners)
