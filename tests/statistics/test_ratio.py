"""Errors, intervals and p values of ratios, held against scipy's and against what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from headscope.causal.loss import TextLoss
from headscope.statistics.ratio import (
    interval,
    rate_interval,
    ratio_error,
    ratio_influence,
    resample,
    rise,
    student_interval,
    student_p_value,
    wilson_interval,
)


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


@pytest.mark.parametrize(("hits", "queries"), [(0, 20), (3, 20), (20, 20), (700, 1000)])
def test_the_interval_of_a_share_is_scipys_wilson_interval(hits, queries):
    found = wilson_interval(np.array([hits / queries]), float(queries))
    expected = stats.binomtest(hits, queries).proportion_ci(0.95, method="wilson")
    assert (found.low[0], found.high[0]) == pytest.approx((expected.low, expected.high), abs=1e-6)


def test_the_interval_of_a_rate_is_the_wider_of_wilsons_and_students_within_0_and_1():
    """Items of the first head differ by more than chance, those of the second by nothing; the
    third head hits always, and the items of the last differ most."""
    rates = np.array([[0.4, 0.6, 0.4, 0.6], [0.5] * 4, [1.0] * 4, [0.0, 0.0, 0.0, 1.0]]).T
    counts = np.full(4, 25)
    rate = rates.mean(0)
    influence = ratio_influence(rates * 25, counts[:, None] * np.ones(4))
    found = rate_interval(rate, influence, queries=100.0, items=4)
    of_queries = [
        stats.binomtest(round(100 * each), 100).proportion_ci(method="wilson") for each in rate
    ]
    half_widths = stats.sem(rates, axis=0) * stats.t.ppf(0.975, 3)
    low = [max(0, min(w.low, r - h)) for w, r, h in zip(of_queries, rate, half_widths, strict=True)]
    high = [
        min(1, max(w.high, r + h)) for w, r, h in zip(of_queries, rate, half_widths, strict=True)
    ]
    np.testing.assert_allclose(found.low, low, atol=1e-6)
    np.testing.assert_allclose(found.high, high, atol=1e-6)
    assert (found.low[0], found.low[3]) < (of_queries[0].low, of_queries[3].low)
    # a single item shows nothing of how items differ
    alone = rate_interval(rate[:1], influence[:1, :1], queries=100.0, items=1)
    assert alone.low[0] == pytest.approx(of_queries[0].low, abs=1e-6)


@pytest.mark.parametrize("blocks", [2, 8, 30])
def test_blocks_of_equally_many_queries_give_students_interval_and_p_value(blocks):
    values = np.random.default_rng(blocks).normal(0.2, 1, (blocks, 3))
    queries = 50
    mean = values.mean(0)
    weight = np.full((blocks, 1), float(queries))
    found = student_interval(mean, ratio_influence(queries * values, weight), blocks)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(found.low, expected.low, rtol=1e-9)
    np.testing.assert_allclose(found.high, expected.high, rtol=1e-9)
    above_zero = stats.ttest_1samp(values, 0, alternative="greater")
    p_values = student_p_value(above_zero.statistic, blocks)
    np.testing.assert_allclose(p_values, above_zero.pvalue, rtol=1e-9)


def test_an_error_is_that_of_the_items_that_each_head_counts():
    values = np.array([[0.1, 0.5, 0.0], [0.4, 0.2, 0.0], [0.8, 0.6, 0.3], [0.3, 0.0, 0.0]])
    counts = np.array([[5.0, 2.0, 0.0], [5.0, 2.0, 0.0], [5.0, 2.0, 4.0], [5.0, 0.0, 0.0]])
    error = ratio_error(values * counts, counts)
    expected = [stats.sem(values[:, 0]), stats.sem(values[:3, 1]), np.nan]
    np.testing.assert_allclose(error, expected)


def test_a_rise_has_the_interval_of_its_windows():
    """Windows whose rises are all alike leave no doubt; unlike ones bracket the mean."""
    tokens = np.array([10, 20, 30, 40])
    base = TextLoss(tokens * 2.0, tokens)
    assert rise(TextLoss(tokens * 2.5, tokens), base)[:3] == pytest.approx((0.5, 0.5, 0.5))
    value, low, high, _ = rise(TextLoss(tokens * np.array([2.0, 2.5, 3.0, 2.2]), tokens), base)
    assert value == pytest.approx((0.5 * 20 + 1.0 * 30 + 0.2 * 40) / 100)
    assert 0 <= low < value < high <= 1
    single = rise(TextLoss(np.array([3.0]), np.array([1])), TextLoss(np.ones(1), np.array([1])))
    assert single[0] == 2
    assert math.isnan(single[1])
    assert math.isnan(single[2])
