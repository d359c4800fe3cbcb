"""A ratio of sums over independent items: its error, its interval, and its p value.

A mass, a rate and a loss per token are all Σ sums / Σ counts over items that are independent of one
another: blocks of documents, windows, prompts. Their errors come from the linearised ratio, their
intervals from that error by Student's t, or from draws with replacement (percentile bootstrap).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real
from numpy import ndarray
from scipy.special import stdtr, stdtrit

if TYPE_CHECKING:
    from headscope.causal.loss import TextLoss

LEVEL = 0.95
RESAMPLES = 1_000
LOSS_RESAMPLES = 2_000
"""Resamples of the difference of two losses."""
Z_95 = 1.959964
"""Standard deviations from the mean that 95 % of a normal distribution are within."""


@dataclass(frozen=True, eq=False)
class Interval:
    """The ends of a 95 % interval for each head."""

    low: Float[ndarray, "*head"]
    high: Float[ndarray, "*head"]


def ratio(
    sums: Float[ndarray, "*head"] | float, count: Real[ndarray, "*_"] | float
) -> Float[ndarray, "*head"]:
    """Sums for each of a count; NaN if nothing was counted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(count == 0, np.nan, sums / count)


# errors and intervals by the linearised ratio


def ratio_influence(
    sums: Float[ndarray, "item ..."], counts: Real[ndarray, "item ..."]
) -> Float[ndarray, "item ..."]:
    """Contribution of each item to the error of Σ sums / Σ counts; the rows sum to 0.

    The ratio is linearised (Cochran 1977, 6.19).

    Args:
        sums: what each item adds to the numerator.
        counts: what it adds to the denominator, of each head or of all alike.
    """
    total = np.asarray(counts.sum(0))
    residual = sums - ratio(sums.sum(0), total) * counts
    return np.asarray(residual / total)


def influence_error(
    influence: Float[ndarray, "item ..."], items: Int[ndarray, "*_"] | int
) -> Float[ndarray, "*head"]:
    """The standard error of an estimate from the influence of its items (Cochran 1977, 2.11).

    Args:
        influence: what each item adds to the error; 0 for an item that was not counted.
        items: number of items that were counted, of each head or of all alike; NaN with fewer than
            two.
    """
    squares = (influence**2).sum(0)
    variance = squares * items / np.maximum(np.asarray(items) - 1, 1)
    return np.where(np.asarray(items) < 2, np.nan, np.sqrt(variance))


def ratio_error(
    sums: Float[ndarray, "item ..."], counts: Real[ndarray, "item ..."]
) -> Float[ndarray, "*head"]:
    """The standard error of Σ sums / Σ counts over items, in the ratio's own unit.

    Args:
        sums: what each item adds to the numerator.
        counts: what it adds to the denominator, of each head or of all alike; items that add
            nothing have no weight. NaN with fewer than two.

    >>> ratio_error(np.array([[1.0], [3.0]]), np.array([[1], [1]]))
    array([1.])
    """
    items = np.asarray((counts > 0).sum(0))
    return influence_error(ratio_influence(sums, counts), items)


def student_half_width(
    error: Float[ndarray, "*head"], items: Int[ndarray, "*head"] | int
) -> Float[ndarray, "*head"]:
    """Half the width of Student's interval of an estimate with this standard error."""
    degrees = np.maximum(np.asarray(items) - 1, 1)
    quantile = stdtrit(degrees, (1 + LEVEL) / 2)
    return np.asarray(quantile * error)


def t_statistic(
    value: Float[ndarray, "*head"] | float, error: Float[ndarray, "*head"] | float
) -> Float[ndarray, "*head"]:
    """A value in standard errors; 0 for one of 0, whose error may be 0 too."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(value == 0, 0.0, np.divide(value, error))


def student_p_value(
    t: Float[ndarray, "*head"], items: Int[ndarray, "*head"] | int
) -> Float[ndarray, "*head"]:
    """The one-sided p value of a statistic t, in [0, 1]: the share of Student's distribution above.

    >>> student_p_value(np.array([0.0]), 8)
    array([0.5])
    """
    degrees = np.maximum(np.asarray(items) - 1, 1)
    return np.asarray(stdtr(degrees, -t))


def student_interval(
    value: Float[ndarray, "*head"], influence: Float[ndarray, "item ..."], items: int
) -> Interval:
    """Student's interval of an estimate from the influence of its items."""
    error = influence_error(influence, items)
    half_width = student_half_width(error, items)
    return Interval(value - half_width, value + half_width)


def effective_queries(
    rate: Float[ndarray, " head"], half_width: Float[ndarray, " head"], queries: float
) -> Float[ndarray, " head"]:
    """Number of independent queries of which a share would have the same interval as a mean.

    A share p of n queries has the variance p (1 − p) / n (Kish 1965, 8.2).

    Args:
        rate: means of numbers in [0, 1].
        half_width: half the width of each one's 95 % interval.
        queries: the number for a mean without an error, such as that of equal numbers.

    >>> effective_queries(np.array([0.5, 0.5, 1.0]), np.array([0.098, 0.049, 0.0]), 20).round()
    array([100., 400.,  20.])
    """
    variance = rate * (1 - rate)
    error = half_width / Z_95
    # equal numbers may have an error of rounding
    has_error = (variance > 0) & (error > 1e-6)
    number = variance / np.where(has_error, error, 1) ** 2
    return np.where(has_error, number, queries)


def wilson_interval(
    rate: Float[ndarray, " head"], queries: Float[ndarray, " head"] | float
) -> Interval:
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


def rate_interval(
    rate: Float[ndarray, " head"],
    influence: Float[ndarray, "item head"],
    *,
    queries: Float[ndarray, " head"] | float,
    items: int,
) -> Interval:
    """The interval of a share of queries, within [0, 1].

    The wider of Wilson's, which no share of 0 or 1 makes empty, and Student's, which includes that
    queries of one item resemble each other; with a single item Wilson's alone.
    """
    of_queries = wilson_interval(rate, queries)
    of_items = student_interval(rate, influence, items)
    low = np.fmin(of_queries.low, of_items.low)
    high = np.fmax(of_queries.high, of_items.high)
    return Interval(low.clip(0), high.clip(None, 1))


# intervals by draws with replacement


def resample(
    items: int, rng: np.random.Generator, *, times: int = RESAMPLES
) -> Float[ndarray, "resample item"]:
    """The number of times that each item is in each resample; a row sums to the items.

    Items are what is independent of one another: blocks of documents, windows, sentences. Ratios
    that are compared take the same draws.

    >>> resample(5, np.random.default_rng(0)).sum(1).mean()
    np.float64(5.0)
    """
    if items == 0:
        return np.zeros((times, 0))
    probabilities = np.full(items, 1 / items)
    draws = rng.multinomial(items, probabilities, size=times)
    return draws.astype(float)


def interval(
    sums: Float[ndarray, "item ..."],
    counts: Real[ndarray, "count ..."],
    draws: Float[ndarray, "resample item"],
) -> Float[ndarray, "bound ..."]:
    """The 95 % interval, low and high, of Σ sums / Σ counts over items (Efron 1979).

    Args:
        sums: what each item adds to the numerator, of one quantity or of many heads.
        counts: what it adds to the denominator: its queries or tokens; of all heads alike, or
            `[item head]`. Resamples in which such a head has no item say nothing of it.
        draws: from `resample`. A single item has no interval: NaN.

    >>> interval(np.full(9, 2.0), np.full(9, 4), resample(9, np.random.default_rng(0)))
    array([0.5, 0.5])
    """
    heads = sums.shape[1:]
    if len(counts) < 2:
        return np.full((2, *heads), np.nan)
    levels = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    if counts.ndim > 1:
        with np.errstate(divide="ignore", invalid="ignore"):
            numerators = draws @ sums
            denominators = draws @ counts
            ratios = numerators / denominators
        has_item = counts.any(0)
        ratios[:, ~has_item] = 0
        return np.asarray(np.nanquantile(ratios, levels, axis=0))
    # single precision is far finer than a thousand draws, and sorted in half the time
    flat = sums.reshape(len(counts), -1).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        numerators = flat.T @ draws.T.astype(np.float32)
        denominators = (draws @ counts).astype(np.float32)
        ratios = numerators / denominators
    is_unknown = np.isnan(ratios).any(-1)
    # quantiles as `numpy.quantile` interpolates them, several times faster: rows lie in memory as
    # they are sorted, which processors do faster than to part them
    ratios.sort(axis=-1)
    last = ratios.shape[1] - 1
    bounds = np.empty((2, len(ratios)))
    for bound, level in zip(bounds, levels, strict=True):
        index = int(level * last)
        fraction = level * last - index
        below = ratios[:, index].astype(float)
        above = ratios[:, index + 1].astype(float)
        bound[:] = below + fraction * (above - below)
    bounds[:, is_unknown] = np.nan
    return bounds.reshape(2, *heads)


class Estimate(NamedTuple):
    """A mean, its 95 % interval, and the one-sided p value of its being above 0."""

    mean: float
    low: float
    high: float
    p_value: float


def estimate(
    sums: Float[ndarray, " item"],
    counts: Real[ndarray, " item"],
    *,
    seed: int,
    times: int = RESAMPLES,
) -> Estimate:
    """Σ sums / Σ counts over items, such as blocks of documents, windows, or pairs.

    The interval is from the percentile bootstrap over items, the p value from Student's
    distribution with the ratio's standard error (Cochran 1977, 2.11).

    >>> result = estimate(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1]), seed=0)
    >>> result.mean, bool(result.p_value < 0.05)
    (2.0, True)
    """
    # only items that were counted are drawn
    used = counts > 0
    sums, counts = sums[used], counts[used]
    if not len(sums):
        unknown = float("nan")
        return Estimate(unknown, unknown, unknown, unknown)
    rng = np.random.default_rng(seed)
    draws = resample(len(sums), rng, times=times)
    low, high = interval(sums, counts, draws)
    mean = float(sums.sum() / counts.sum())
    t = t_statistic(mean, ratio_error(sums, counts))
    p_value = student_p_value(t, len(sums))
    return Estimate(mean, float(low), float(high), float(p_value))


def rise(after: TextLoss, before: TextLoss, *, seed: int = 0) -> Estimate:
    """The difference of two losses of one text, in nats per token.

    Both losses are taken on the same draws of windows (a paired percentile bootstrap).
    """
    difference = after.nats - before.nats
    return estimate(difference, before.tokens, seed=seed, times=LOSS_RESAMPLES)
