"""A tally's sums of one relation: ratios, their intervals and tests, and the twin's share.

The test at contested queries flips the signs of blocks of documents. Were a head's attention no
more on the target than on what the baseline heuristic picks, the two could change places in every
document alike. The share of all such changes that leave a difference at least as large is the p
value (Fisher 1935; Edgington & Onghena 2007, chapter 5). It supposes no distribution, and holds at
any number of queries.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.special import stdtr, stdtrit

from headscope.measure.bootstrap import LEVEL, interval, ratio_error, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.effects import Effect
from headscope.relations.relation import Relation, part_name
from headscope.statistics.conditions import Z_95

EXACT_BLOCKS = 12
"""Up to so many blocks all changes of signs are tried; with more, as many as these have are drawn,
the observed signs among them (Phipson & Smyth 2010)."""
_ROUNDING = 1e-9
"""Share of a head's sums below which two sums are the same."""


def sign_flip_p(
    differences: Float[ndarray, "block head"], seed: int = 0
) -> Float[ndarray, " head"]:
    """One-sided p value of a sum of differences being above 0, in (0, 1].

    Args:
        differences: in each block the sum of a head's attention on targets less that on rivals; a
            block without a query must be left out.
        seed: seeds the draws where the blocks are too many to try all.

    >>> sign_flip_p(np.array([[3.0], [1.0], [2.0]])).tolist()  # of 8 changes none is as large
    [0.125]
    >>> sign_flip_p(np.array([[3.0], [-1.0], [2.0]])).tolist()  # +−+ and +++ are
    [0.25]
    """
    signs = _signs(len(differences), seed)
    sums = signs @ differences
    tolerance = _ROUNDING * np.abs(differences).sum(0)
    return np.asarray((sums >= sums[0] - tolerance).mean(0))


def least_p(blocks: int) -> float:
    """The smallest p value that so many blocks can give.

    >>> least_p(3), least_p(64) == least_p(12)
    (0.125, True)
    """
    return float(0.5 ** min(blocks, EXACT_BLOCKS))


@lru_cache(maxsize=16)  # of 2 MB at most
def _signs(blocks: int, seed: int) -> Float[ndarray, "change block"]:
    """Changes of signs, the first of them none."""
    if blocks <= EXACT_BLOCKS:
        bits = np.arange(2**blocks)[:, None] >> np.arange(blocks) & 1
    else:
        bits = np.random.default_rng([seed, blocks]).integers(0, 2, (2**EXACT_BLOCKS, blocks))
        bits[0] = 0
    return 1.0 - 2.0 * bits


TWIN_PERCENTILE = 0.999
"""Percentile of the lifts of the twin's heads that a relation's lift must exceed."""
TWIN_QUERIES = 8
"""A relation with fewer queries in the twin's share of the text says nothing about chance."""


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

    def hit_interval(self) -> tuple[Float[ndarray, " head"], Float[ndarray, " head"]]:
        """The 95 % interval of the hit rate: the wider of Wilson's and Student's over blocks.

        Where every query is hit, blocks do not differ and would seem sure; Wilson's interval of a
        proportion knows how few they are (Wilson 1927). NaN with fewer than eight blocks.
        """
        rate, queries = self.mean(self.hits), self.weight.sum(0)
        error = self.margin_of_error(self.hits)
        centre = (rate + Z_95**2 / (2 * queries)) / (1 + Z_95**2 / queries)
        spread = rate * (1 - rate) / queries + Z_95**2 / (4 * queries**2)
        half = Z_95 * np.sqrt(spread.clip(0)) / (1 + Z_95**2 / queries)
        low, high = np.minimum(rate - error, centre - half), np.maximum(rate + error, centre + half)
        return low.clip(0), high.clip(None, 1)

    def contested_p(
        self, p_value: Float[ndarray, " head"], bounded: Bool[ndarray, " head"]
    ) -> Float[ndarray, " head"]:
        """One-sided p value of the excess by flipping signs of blocks; see `sign_flip_p`.

        Args:
            p_value: of Student's test, kept for heads that no tag hangs on.
            bounded: the others.
        """
        p_values = p_value.copy()
        p_values[bounded] = sign_flip_p(self.excess[self.weight[:, 0] > 0][:, bounded], self.seed)
        return p_values

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


def twin_lift(twin: Tally | None, relation: Relation) -> float:
    """Lift that at most one head of a thousand of the twin exceeds; NaN with few queries.

    Of a relation that asks for a lift below 0 it is the lift that at most so many lie below.
    """
    sums = None if twin is None else TallySums(twin).of(relation)
    if sums is None:
        return float("nan")
    excess, weight = sums.excess.sum(0), np.broadcast_to(sums.weight.sum(0), sums.excess.shape[1:])
    enough = weight >= TWIN_QUERIES
    if not enough.any():
        return float("nan")
    sign = relation.sign
    return float(sign * np.quantile(sign * excess[enough] / weight[enough], TWIN_PERCENTILE))


def ratio(
    sums: Float[ndarray, " head"], count: Float[ndarray, " _"] | float
) -> Float[ndarray, " head"]:
    """Sums for each of a count; NaN if nothing was counted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count == 0, np.nan, sums / count)
