"""The one bootstrap, held against scipy's and against what is known of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headscope.statistics.bootstrap import interval, resample


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_the_interval_is_scipys_percentile_bootstrap_of_a_ratio():
    sums, counts = rng().gamma(2.0, size=40), rng().integers(5, 30, 40)
    low, high = interval(sums, counts, resample(40, rng(), times=20_000))
    theirs = stats.bootstrap(
        (sums, counts.astype(float)),
        lambda a, b, axis: a.sum(axis) / b.sum(axis),
        n_resamples=20_000,
        paired=True,
        method="percentile",
        random_state=2,
    ).confidence_interval
    # two draws of 20,000: their quantiles differ by about 1 % of the interval's length
    assert low == pytest.approx(theirs.low, abs=0.03 * (theirs.high - theirs.low))
    assert high == pytest.approx(theirs.high, abs=0.03 * (theirs.high - theirs.low))


@pytest.mark.parametrize("items", [0, 1])
def test_fewer_than_two_items_have_no_interval(items):
    draws = resample(items, rng())
    bounds = interval(np.ones((items, 3)), np.ones(items), draws)
    assert bounds.shape == (2, 3)
    assert np.isnan(bounds).all()


def test_two_items_have_an_interval_from_one_to_the_other():
    # a quarter of the draws holds the first item alone, another quarter the second
    draws = resample(2, rng())
    assert interval(np.array([0.0, 4.0]), np.array([2, 2]), draws).tolist() == [0, 2]


def test_heads_that_count_items_of_their_own_are_the_heads_one_by_one():
    rng = np.random.default_rng(2)
    sums, counts = rng.normal(3, 1, (20, 4)), rng.integers(1, 9, (20, 4)).astype(float)
    counts[3:, 2] = sums[3:, 2] = 0  # a head with three items
    counts[:, 3] = sums[:, 3] = 0
    draws = resample(20, np.random.default_rng(3))
    low, high = interval(sums, counts, draws)
    for head in range(2):
        alone = interval(sums[:, head], counts[:, head], draws)
        assert (low[head], high[head]) == pytest.approx(tuple(alone), rel=1e-5)
    drawn = draws[:, :3].any(1)
    ratios = (draws[drawn] @ sums[:, 2]) / (draws[drawn] @ counts[:, 2])
    assert (low[2], high[2]) == pytest.approx(tuple(np.quantile(ratios, (0.025, 0.975))))
    assert low[3] == high[3] == 0
