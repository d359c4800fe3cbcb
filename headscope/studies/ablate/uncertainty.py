"""Uncertainty of an effect of silencing: its interval and test over independent items."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Real
from numpy import ndarray
from scipy.special import stdtr

from headscope.measure.bootstrap import interval, ratio_error, resample


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

    >>> found = estimate(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1]), seed=0)
    >>> found.mean, bool(found.p_value < 0.05)
    (2.0, True)
    """
    used = counts > 0
    sums, counts = sums[used], counts[used]
    if not len(sums):
        return Estimate(*[float("nan")] * 4)
    low, high = interval(sums, counts, resample(len(sums), np.random.default_rng(seed)))
    mean = float(sums.sum() / counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        error = ratio_error(sums[:, None], counts[:, None])[0]
        t = 0.0 if mean == 0 else mean / error
    p_value = float(stdtr(max(1, len(sums) - 1), -t))
    return Estimate(mean, float(low), float(high), p_value)


def by_block(
    values: Float[ndarray, " query"], block: Int[ndarray, " query"]
) -> tuple[Float[ndarray, " block"], Int[ndarray, " block"]]:
    """The sums and counts of each block's values."""
    return np.bincount(block, values).astype(float), np.bincount(block)
