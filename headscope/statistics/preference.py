"""Rates at which heads prefer the target at hard queries, beside those of baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.measure.tally import MIN_BLOCKS
from headscope.statistics.ratio import Interval, rate_interval, ratio_influence
from headscope.statistics.relation_sums import RelationSums


@dataclass(frozen=True, eq=False)
class Preference:
    """Rates at which heads prefer the target at hard and easy queries, each in [0, 1]."""

    rate: Float[ndarray, " head"]
    """Share of hard queries at which the target has more attention than any other candidate, and
    at least `headscope.relations.hard_queries.least_attention`."""
    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]
    easy_rate: Float[ndarray, " head"]
    """The same share of easy queries."""
    baseline_rate: Float[ndarray, " head"]
    """Rate at hard queries of the best mixture of baselines with this rate at easy queries."""


class MixtureBound:
    """Best rate at hard queries of a mixture of baselines, by its rate at easy queries.

    A mixture follows one baseline at some queries and another at the others. The best ones lie on
    straight lines between the corners.

    Args:
        corners: easy and hard rate of the baselines that no mixture of others exceeds, the easy
            rates falling; see `FittedBaselines.facts`.

    >>> bound = MixtureBound([[1.0, 0.0], [0.4, 0.6], [0.0, 0.8]])
    >>> easy_rate = np.array([0.7, 0.2])
    >>> bound.at(easy_rate).round(3), bound.slope(easy_rate).round(3)
    (array([0.3, 0.7]), array([-1. , -0.5]))
    """

    _STEP = 0.01
    """Difference of easy rates by which the slope is measured."""

    def __init__(self, corners: Sequence[Sequence[float]]) -> None:
        rising = np.array(corners[::-1])
        self._easy_rates = rising[:, 0]
        self._hard_rates = rising[:, 1]

    def at(self, easy_rate: Float[ndarray, " head"]) -> Float[ndarray, " head"]:
        """The best rate at hard queries, in [0, 1]."""
        return np.asarray(np.interp(easy_rate, self._easy_rates, self._hard_rates))

    def slope(self, easy_rate: Float[ndarray, " head"]) -> Float[ndarray, " head"]:
        """Change of the best rate per unit of the easy rate, at most 0."""
        fall = self.at(easy_rate) - self.at(easy_rate - self._STEP)
        return np.asarray(fall / self._STEP)


def preference(
    hard: RelationSums, easy: RelationSums | None, corners: Sequence[Sequence[float]]
) -> Preference:
    """Rates of heads beside the mixture of baselines; see `MixtureBound` for the corners.

    The 95 % interval is of the rate at hard queries if that of the baselines is fixed. It is the
    wider of Wilson's for a share and Student's over blocks of documents, which includes the error
    of the baselines' rate by that of the easy rate. NaN with fewer than eight blocks.
    """
    bound = MixtureBound(corners)
    rate = hard.mean(hard.hits)
    easy_rate = np.ones_like(rate) if easy is None else easy.mean(easy.hits)
    influence = ratio_influence(hard.hits, hard.divisor)
    if easy is not None:
        easy_influence = ratio_influence(easy.hits, easy.divisor)
        influence = influence - bound.slope(easy_rate) * easy_influence
    interval = _rate_interval(hard, rate, influence)
    return Preference(
        rate=rate,
        low=interval.low,
        high=interval.high,
        easy_rate=easy_rate,
        baseline_rate=bound.at(easy_rate),
    )


def of_text_alone(sums: RelationSums) -> RelationSums:
    """The sums of compared queries without those of the challenge set."""
    return replace(
        sums,
        hits=sums.hits - sums.control,
        divisor=sums.divisor - sums.chance[:, None],
    )


class TopRate(NamedTuple):
    """Share of hard queries at which a target has more attention than any other token.

    Sinks are left out. Each number is in [0, 1].
    """

    rate: Float[ndarray, " head"]
    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]


def top_rate(hard: RelationSums) -> TopRate:
    """The share with its 95 % interval, which is as wide as that of `preference`."""
    rate = hard.mean(hard.target)
    influence = ratio_influence(hard.target, hard.divisor)
    interval = _rate_interval(hard, rate, influence)
    return TopRate(rate, interval.low, interval.high)


def _rate_interval(
    hard: RelationSums, rate: Float[ndarray, " head"], influence: Float[ndarray, "block head"]
) -> Interval:
    """The interval of a rate at hard queries; NaN with too few blocks."""
    if hard.blocks < MIN_BLOCKS:
        unknown = np.full_like(rate, np.nan)
        return Interval(unknown, unknown)
    queries = float(hard.divisor.sum())
    return rate_interval(rate, influence, queries=queries, items=hard.blocks)
