"""The percentile bootstrap: what draws with replacement say about a ratio of sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Real
from numpy import ndarray
from scipy.special import stdtr

LEVEL = 0.95
RESAMPLES = 1_000


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
    bounds = np.stack(list(_quantiles(ratios, levels)))
    is_unknown = np.isnan(ratios).any(-1)
    bounds[:, is_unknown] = np.nan
    return bounds.reshape(2, *heads)


def ratio_error(
    sums: Float[ndarray, "item head"], counts: Real[ndarray, "item _"]
) -> Float[ndarray, " head"]:
    """The standard error of Σ sums / Σ counts over items, in the ratio's own unit.

    The ratio estimator: residuals of the items give the variance (Cochran 1977, 2.11 and 6.4).

    Args:
        sums: what each item adds to the numerator.
        counts: what it adds to the denominator, of each head or of all alike; items that add
            nothing have no weight. NaN with fewer than two.

    >>> ratio_error(np.array([[1.0], [3.0]]), np.array([[1], [1]]))
    array([1.])
    """
    total = counts.sum(0)
    items = (counts > 0).sum(0)
    ratio = sums.sum(0) / total
    residual = sums - counts * ratio
    variance = items / (items - 1) * (residual**2).sum(0)
    return np.asarray(np.sqrt(variance) / total)


class Estimate(NamedTuple):
    """A mean, its 95 % interval, and the one-sided p value of its being above 0."""

    mean: float
    low: float
    high: float
    p_value: float


def estimate(
    sums: Float[ndarray, " item"], counts: Real[ndarray, " item"], *, seed: int
) -> Estimate:
    """Σ sums / Σ counts over items, such as blocks of documents, windows, or pairs.

    The interval is from the percentile bootstrap over items, the p value from Student's
    distribution with the ratio's standard error (Cochran 1977, 2.11).

    >>> result = estimate(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1]), seed=0)
    >>> result.mean, bool(result.p_value < 0.05)
    (2.0, True)
    """
    used = counts > 0
    sums, counts = sums[used], counts[used]
    if not len(sums):
        unknown = float("nan")
        return Estimate(unknown, unknown, unknown, unknown)
    rng = np.random.default_rng(seed)
    resamples = resample(len(sums), rng)
    low, high = interval(sums, counts, resamples)
    mean = float(sums.sum() / counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        error = ratio_error(sums[:, None], counts[:, None])[0]
        t = 0.0 if mean == 0 else mean / error
    freedom = max(1, len(sums) - 1)
    p_value = float(stdtr(freedom, -t))
    return Estimate(mean, float(low), float(high), p_value)


def _quantiles(
    values: Float[ndarray, "row value"], levels: Sequence[float]
) -> Iterator[Float[ndarray, " row"]]:
    """Quantiles of each row, as `numpy.quantile` interpolates them; several times faster, for rows
    lie in memory as they are sorted, which processors do faster than to part them. The values are
    reordered.
    """
    last = values.shape[1] - 1
    values.sort(axis=-1)
    for level in levels:
        index = int(level * last)
        fraction = level * last - index
        below = values[:, index].astype(float)
        above = values[:, index + 1].astype(float)
        yield below + fraction * (above - below)
