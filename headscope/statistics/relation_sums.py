"""A tally's sums of one relation: ratios, their intervals and tests.

A head's mass is Σ attention on targets ÷ Σ queries over all blocks of documents. Intervals are over
blocks, from resamples or by Student's t.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from einops import rearrange
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.effects import Effect
from headscope.relations.parts import part_name
from headscope.relations.relation import Relation
from headscope.statistics.ratio import (
    Interval,
    interval,
    ratio,
    ratio_error,
    ratio_influence,
    resample,
    student_half_width,
    student_interval,
    student_p_value,
    t_statistic,
)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """The 95 % interval of a ratio and the one-sided p value of its being above 0, by head."""

    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]
    p_value: Float[ndarray, " head"]


@dataclass(frozen=True, eq=False)
class RelationSums:
    """Sums of one relation, or of a part of it, in each block."""

    target: Float[ndarray, "block head"]
    control: Float[ndarray, "block head"]
    hits: Float[ndarray, "block head"]
    chance: Float[ndarray, " block"]
    divisor: Float[ndarray, "block _"]
    """Divisor of the sums; see `Tally`. Of attention the number of queries, which all
    heads have in common; of an effect the weights of the queries of each head."""
    seed: int
    draws: dict[int, Float[ndarray, "resample used"]] = field(default_factory=dict, repr=False)
    """Resamples by the number of blocks, the same for every relation that has as many."""

    @property
    def blocks(self) -> int:
        """Blocks of documents with a query of some head."""
        return int(self._used.sum())

    @property
    def excess(self) -> Float[ndarray, "block head"]:
        """Sums on targets less those on controls."""
        return np.asarray(self.target - self.control)

    @property
    def preference(self) -> Float[ndarray, "block head"]:
        """Of hard or easy queries: sums of the preference for targets; see `Tally`."""
        return self.hits

    @property
    def top_queries(self) -> Float[ndarray, "block head"]:
        """Of hard or easy queries: how many have more attention on a target than on any other key.

        Sinks are left out.
        """
        return self.target

    def of_text_alone(self) -> RelationSums:
        """Of hard or easy queries: those that do not lie in the challenge set.

        Their `top_queries` stay as they are, as a tally does not tell them apart.
        """
        of_challenge, queries_of_challenge = self.control, self.chance
        return replace(
            self,
            hits=self.hits - of_challenge,
            divisor=self.divisor - queries_of_challenge[:, None],
        )

    def mean(self, sums: Float[ndarray, "block head"]) -> Float[ndarray, " head"]:
        """Sums over all blocks for each query; NaN for a head without any."""
        return ratio(sums.sum(0), self.divisor.sum(0))

    def uncertainty(
        self,
        excess: Float[ndarray, "block head"],
        bounded: Bool[ndarray, " head"],
        sign: int = 1,
    ) -> Uncertainty:
        """Interval and p value of Σ excess / Σ divisor: blocks resampled or compared.

        NaN for a head that was asked in fewer than eight blocks.

        Args:
            excess: the sums.
            bounded: heads whose interval is from resamples; of the others it is Student's.
            sign: the side of 0 that the test asks for.
        """
        used = self._used
        divisor = self.divisor[used]
        # an interval needs blocks in which the head was asked
        blocks = self._blocks_of_heads(excess)
        is_known = blocks >= MIN_BLOCKS
        if not is_known.any():
            unknown = np.full(excess.shape[1:], np.nan)
            return Uncertainty(unknown, unknown, unknown)
        # Student's interval for all heads, as it costs little
        lift = ratio(excess[used].sum(0), divisor.sum(0))
        error = self._error(excess)
        half_width = student_half_width(error, blocks)
        low = lift - half_width
        high = lift + half_width
        # resamples for heads that may have a tag; relations with as many blocks share them
        counts = divisor[:, 0] if divisor.shape[1] == 1 else divisor[:, bounded]
        if len(divisor) not in self.draws:
            rng = np.random.default_rng([self.seed, len(divisor)])
            self.draws[len(divisor)] = resample(len(divisor), rng)
        draws = self.draws[len(divisor)]
        low[bounded], high[bounded] = interval(excess[used][:, bounded], counts, draws)
        t = t_statistic(sign * lift, error)
        p_value = student_p_value(t, blocks)
        return Uncertainty(
            low=np.where(is_known, low, np.nan),
            high=np.where(is_known, high, np.nan),
            p_value=np.where(is_known, p_value, np.nan),
        )

    def margin_of_error(self, sums: Float[ndarray, "block head"]) -> Float[ndarray, " head"]:
        """Half the width of Student's 95 % interval of Σ sums / Σ divisor over blocks.

        NaN for a head that was asked in fewer than eight blocks.
        """
        blocks = self._blocks_of_heads(sums)
        half_width = student_half_width(self._error(sums), blocks)
        return np.where(blocks < MIN_BLOCKS, np.nan, half_width)

    def _blocks_of_heads(self, sums: Float[ndarray, "block head"]) -> Int[ndarray, " head"]:
        """Number of blocks in which each head was asked."""
        is_asked = self.divisor[self._used] > 0
        return np.broadcast_to(is_asked.sum(0), sums.shape[1:])

    @property
    def _used(self) -> Bool[ndarray, " block"]:
        """Blocks with a query of some head."""
        return np.asarray((self.divisor > 0).any(1))

    def _error(self, sums: Float[ndarray, "block head"]) -> Float[ndarray, " head"]:
        """The standard error of Σ sums / Σ divisor over blocks."""
        used = self._used
        return ratio_error(sums[used], self.divisor[used])


class TallySums:
    """The sums of a tally, relation by relation."""

    def __init__(self, tally: Tally, seed: int = 0) -> None:
        self.tally = tally
        self._seed = seed
        self._place = {name: index for index, name in enumerate(tally.relations)}
        self._draws: dict[int, ndarray] = {}

    def of(self, relation: Relation, part: str = "") -> RelationSums | None:
        """Sums of a relation or of its part; None if it has no query or is not in the tally."""
        name = part_name(relation.id, part) if part else relation.id
        index = self._place.get(name)
        if index is None:
            return None
        # attention is divided by queries, which heads share; an effect by each head's weights
        hits = self._by_head(self.tally.hits, index)
        queries = self.tally.queries[:, index, None]
        divisor = hits if isinstance(relation, Effect) else queries
        if not divisor.any():
            return None
        return RelationSums(
            target=self._by_head(self.tally.target, index),
            control=self._by_head(self.tally.control, index),
            hits=hits,
            chance=self.tally.chance[:, index],
            divisor=divisor,
            seed=self._seed,
            draws=self._draws,
        )

    def _by_head(self, sums: ndarray, index: int) -> Float[ndarray, "block head"]:
        """The sums of a relation `[block layer head]`, with the heads of all layers in a row."""
        return rearrange(sums[:, index], "block layer head -> block (layer head)")


def lift_difference(first: RelationSums, second: RelationSums, head: int) -> Interval:
    """The interval of a head's lift for one relation less that for another.

    Blocks of documents hold queries of both, so that what they have in common cancels (Student's
    interval of a difference of ratios, linearised; Cochran 1977, 6.19).
    """
    excess = first.excess[:, [head]]
    other_excess = second.excess[:, [head]]
    lift = ratio(excess.sum(0), first.divisor.sum(0))
    other_lift = ratio(other_excess.sum(0), second.divisor.sum(0))
    influence = ratio_influence(excess, first.divisor)
    other_influence = ratio_influence(other_excess, second.divisor)
    # blocks that hold queries of either
    queries = first.divisor[:, 0] + second.divisor[:, 0]
    blocks = int(np.count_nonzero(queries))
    return student_interval(lift - other_lift, influence - other_influence, blocks)
