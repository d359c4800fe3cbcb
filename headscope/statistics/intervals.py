"""Formulas of 95 % intervals: a share, and a ratio of sums over blocks of documents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.special import stdtr, stdtrit

from headscope.statistics.bootstrap import LEVEL

Z_95 = 1.959964
"""Standard deviations from the mean that 95 % of a normal distribution are within."""


@dataclass(frozen=True, eq=False)
class Interval:
    """The ends of a 95 % interval for each head."""

    low: Float[ndarray, " head"]
    high: Float[ndarray, " head"]


def wilson_interval(rate: Float[ndarray, " head"], queries: float) -> Interval:
    """The interval of a share of independent queries (Wilson 1927).

    >>> interval = wilson_interval(np.array([1.0]), 20)
    >>> interval.low.round(3), interval.high.round(3)
    (array([0.839]), array([1.]))
    """
    square = Z_95**2
    shrinkage = 1 + square / queries
    centre = (rate + square / (2 * queries)) / shrinkage
    variance_of_rate = rate * (1 - rate) / queries
    variance = variance_of_rate + square / (4 * queries**2)
    # a rate of 1 + 1e-16 has a negative variance
    error = np.sqrt(variance.clip(0))
    half_width = Z_95 * error / shrinkage
    return Interval(centre - half_width, centre + half_width)


def ratio_influence(
    sums: Float[ndarray, "block ..."],
    weight: Float[ndarray, "block ..."],
    value: Float[ndarray, " head"] | float,
) -> Float[ndarray, "block ..."]:
    """What each block adds to the error of `value` = Σ sums / Σ weight.

    The ratio is linearised (Cochran 1977, 6.19). The rows sum to 0.
    """
    residual = sums - value * weight
    return np.asarray(residual / weight.sum())


def influence_error(influence: Float[ndarray, "block ..."], blocks: int) -> Float[ndarray, "*head"]:
    """The standard error of an estimate from the influence of its blocks.

    Args:
        influence: what each block adds to the error; 0 for a block without queries.
        blocks: number of blocks with queries.
    """
    squares = (influence**2).sum(0)
    correction = max(blocks - 1, 1)
    return np.asarray(np.sqrt(squares * blocks / correction))


def student_half_width(
    error: Float[ndarray, "*head"], blocks: Int[ndarray, "*head"] | int
) -> Float[ndarray, "*head"]:
    """Half the width of Student's interval of an estimate with this standard error."""
    degrees = np.maximum(np.asarray(blocks) - 1, 1)
    quantile = stdtrit(degrees, (1 + LEVEL) / 2)
    return np.asarray(quantile * error)


def student_p_value(
    t: Float[ndarray, " head"], blocks: Int[ndarray, " head"] | int
) -> Float[ndarray, " head"]:
    """The one-sided p value of a statistic t, in [0, 1]: the share of Student's distribution above.

    >>> student_p_value(np.array([0.0]), 8)
    array([0.5])
    """
    degrees = np.maximum(np.asarray(blocks) - 1, 1)
    return np.asarray(stdtr(degrees, -t))


def block_interval(
    value: Float[ndarray, " head"], influence: Float[ndarray, "block head"], blocks: int
) -> Interval:
    """Student's interval of an estimate over blocks of documents."""
    error = influence_error(influence, blocks)
    half_width = student_half_width(error, blocks)
    return Interval(value - half_width, value + half_width)


def widest(*intervals: Interval) -> Interval:
    """The smallest interval that includes all of these."""
    low = np.minimum.reduce([interval.low for interval in intervals])
    high = np.maximum.reduce([interval.high for interval in intervals])
    return Interval(low, high)


def unknown_interval(value: Float[ndarray, " head"]) -> Interval:
    """NaN for each head: too few blocks for an interval."""
    unknown = np.full_like(value, np.nan)
    return Interval(unknown, unknown)
