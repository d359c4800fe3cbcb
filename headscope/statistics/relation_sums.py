"""A tally's sums of one relation: ratios, their intervals and tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.special import stdtr, stdtrit

from headscope.measure.bootstrap import LEVEL, interval, ratio_error, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.effects import Effect
from headscope.relations.relation import Relation, part_name
from headscope.statistics.conditions import Z_95

_STEP = 0.01
"""Difference of easy rates by which the slope of the baselines' rates is measured."""


@dataclass(frozen=True, eq=False)
class RelationSums:
    """Sums of one relation, or of a part of it, in each block."""

    target: Float[ndarray, "block head"]
    control: Float[ndarray, "block head"]
    hits: Float[ndarray, "block head"]
    chance: Float[ndarray, " block"]
    weight: Float[ndarray, "block _"]
    """Divisor of the sums: the queries, which all heads have in common, or of an effect
    what each head was asked at."""
    seed: int
    draws: dict[int, Float[ndarray, "resample used"]] = field(default_factory=dict, repr=False)
    """Resamples by the number of blocks, the same for every relation that has as many."""

    @property
    def blocks(self) -> int:
        """Blocks of documents with a query of some head."""
        return int((self.weight > 0).any(1).sum())

    @property
    def excess(self) -> Float[ndarray, "block head"]:
        """Sums on targets less those on controls."""
        return np.asarray(self.target - self.control)

    def mean(self, sums: Float[ndarray, "block head"]) -> Float[ndarray, " head"]:
        """Sums over all blocks for each query; NaN for a head without any."""
        return ratio(sums.sum(0), self.weight.sum(0))

    def uncertainty(
        self,
        excess: Float[ndarray, "block head"],
        bounded: Bool[ndarray, " head"],
        sign: int = 1,
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Interval and one-sided p value of Σ excess / Σ weight: blocks resampled or compared.

        NaN for a head that was asked in fewer than eight blocks.

        Args:
            excess: the sums.
            bounded: heads whose interval is from resamples; of the others it is Student's.
            sign: the side of 0 that the test asks for.
        """
        used = np.asarray((self.weight > 0).any(1))
        excess, weight = excess[used], self.weight[used]
        blocks = (weight > 0).sum(0)
        too_few = np.broadcast_to(blocks < MIN_BLOCKS, bounded.shape)
        if too_few.all():
            return tuple(np.full((3, len(bounded)), np.nan))  # type: ignore[return-value]
        with np.errstate(divide="ignore", invalid="ignore"):
            lift, error = excess.sum(0) / weight.sum(0), ratio_error(excess, weight)
            t = np.where(lift == 0, 0.0, sign * lift / error)
            wide = stdtrit(np.maximum(blocks - 1, 1), (1 + LEVEL) / 2) * error
        p_value = stdtr(np.maximum(blocks - 1, 1), -t)  # above t in Student's distribution
        low, high = lift - wide, lift + wide
        counts = weight[:, 0] if weight.shape[1] == 1 else weight[:, bounded]
        low[bounded], high[bounded] = interval(excess[:, bounded], counts, self._resamples(used))
        return tuple(np.where(too_few, np.nan, values) for values in (low, high, p_value))  # type: ignore[return-value]

    def margin_of_error(self, sums: Float[ndarray, "block head"]) -> Float[ndarray, " head"]:
        """Half the width of Student's 95 % interval of Σ sums / Σ weight over blocks.

        NaN for a head that was asked in fewer than eight blocks.
        """
        used = np.asarray((self.weight > 0).any(1))
        weight = self.weight[used]
        blocks = np.broadcast_to((weight > 0).sum(0), sums.shape[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            error = stdtrit(np.maximum(blocks - 1, 1), (1 + LEVEL) / 2) * ratio_error(
                sums[used], weight
            )
        return np.where(blocks < MIN_BLOCKS, np.nan, error)

    def _resamples(self, used: Bool[ndarray, " block"]) -> Float[ndarray, "resample used"]:
        blocks = int(used.sum())
        if blocks not in self.draws:
            self.draws[blocks] = resample(blocks, np.random.default_rng([self.seed, blocks]))
        return self.draws[blocks]


class TallySums:
    """The sums of a tally, relation by relation."""

    def __init__(self, tally: Tally, blocks: slice = slice(None), seed: int = 0) -> None:
        self.tally = tally
        self._blocks, self._seed = blocks, seed
        self._place = {name: index for index, name in enumerate(tally.relations)}
        self._draws: dict[int, ndarray] = {}

    def of(self, relation: Relation, part: str = "") -> RelationSums | None:
        """Sums of a relation or of its part; None if it has no query or is not in the tally."""
        index = self._place.get(part_name(relation.id, part) if part else relation.id)
        if index is None:
            return None
        target, control, hits = (
            sums[self._blocks, index].reshape(-1, self.tally.layers * self.tally.heads)
            for sums in (self.tally.target, self.tally.control, self.tally.hits)
        )
        queries = self.tally.queries[self._blocks, index, None]
        weight = hits if isinstance(relation, Effect) else queries
        if not weight.any():
            return None
        chance = self.tally.chance[self._blocks, index]
        return RelationSums(target, control, hits, chance, weight, self._seed, self._draws)


def lift_difference(first: RelationSums, second: RelationSums, head: int) -> tuple[float, float]:
    """A head's lift for one relation less that for another, and half of its 95 % interval.

    Blocks of documents hold queries of both, so that what they have in common cancels (Student's
    interval of a difference of ratios, linearised; Cochran 1977, 6.19).
    """
    lifts, influence = [], []
    for sums in (first, second):
        excess, weight = sums.excess[:, head], sums.weight[:, 0]
        lifts.append(excess.sum() / weight.sum())
        influence.append((excess - lifts[-1] * weight) / weight.sum())
    difference = influence[0] - influence[1]
    used = (first.weight[:, 0] > 0) | (second.weight[:, 0] > 0)
    blocks = int(used.sum())
    error = np.sqrt((difference[used] ** 2).sum() * blocks / max(blocks - 1, 1))
    return float(lifts[0] - lifts[1]), float(stdtrit(max(blocks - 1, 1), (1 + LEVEL) / 2) * error)


class Preference(NamedTuple):
    """Rates at which heads prefer the target at hard and easy queries, each in [0, 1]."""

    rate: Float[ndarray, " head"]
    """Share of hard queries at which the target has more attention than any other candidate."""
    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]
    easy_rate: Float[ndarray, " head"]
    """The same share of easy queries."""
    baseline_rate: Float[ndarray, " head"]
    """Rate at hard queries of the best mixture of baselines with this rate at easy queries."""


def preference(
    hard: RelationSums, easy: RelationSums | None, corners: Sequence[Sequence[float]]
) -> Preference:
    """Rates of heads beside the corners of baselines; see `FittedBaselines.facts`.

    The 95 % interval is of the rate at hard queries if that of the baselines is fixed. It is the
    wider of Wilson's (1927) for a share and Student's over blocks of documents, which includes the
    error of the baselines' rate by that of the easy rate (linearised; Cochran 1977, 6.19). NaN
    with fewer than eight blocks.
    """
    rate, queries = hard.mean(hard.hits), float(hard.weight.sum())
    easy_rate = np.ones_like(rate) if easy is None else easy.mean(easy.hits)
    x, y = np.array(corners[::-1]).T
    baseline_rate = np.interp(easy_rate, x, y)
    used = hard.weight[:, 0] > 0
    blocks = int(used.sum())
    influence = (hard.hits - rate * hard.weight) / queries
    if easy is not None:
        slope = (baseline_rate - np.interp(easy_rate - _STEP, x, y)) / _STEP
        influence = influence - slope * (easy.hits - easy_rate * easy.weight) / easy.weight.sum()
    if blocks < MIN_BLOCKS:
        unknown = np.full_like(rate, np.nan)
        return Preference(rate, unknown, unknown, easy_rate, baseline_rate)
    spread = np.sqrt((influence**2).sum(0) * blocks / (blocks - 1))
    error = stdtrit(blocks - 1, (1 + LEVEL) / 2) * spread
    centre = (rate + Z_95**2 / (2 * queries)) / (1 + Z_95**2 / queries)
    variance = rate * (1 - rate) / queries + Z_95**2 / (4 * queries**2)
    half = Z_95 * np.sqrt(variance.clip(0)) / (1 + Z_95**2 / queries)
    low = np.minimum(rate - error, centre - half).clip(0)
    high = np.maximum(rate + error, centre + half).clip(None, 1)
    return Preference(rate, low, high, easy_rate, baseline_rate)


def ratio(
    sums: Float[ndarray, " head"], count: Float[ndarray, " _"] | float
) -> Float[ndarray, " head"]:
    """Sums for each of a count; NaN if nothing was counted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count == 0, np.nan, sums / count)
