"""Formulas of intervals, held against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headscope.statistics.intervals import (
    block_interval,
    ratio_influence,
    student_p_value,
    wilson_interval,
)


@pytest.mark.parametrize(("hits", "queries"), [(0, 20), (3, 20), (20, 20), (700, 1000)])
def test_the_interval_of_a_share_is_scipys_wilson_interval(hits, queries):
    interval = wilson_interval(np.array([hits / queries]), float(queries))
    expected = stats.binomtest(hits, queries).proportion_ci(0.95, method="wilson")
    found = interval.low[0], interval.high[0]
    assert found == pytest.approx((expected.low, expected.high), abs=1e-6)


@pytest.mark.parametrize("blocks", [2, 8, 30])
def test_blocks_of_equally_many_queries_give_students_interval_and_p_value(blocks):
    values = np.random.default_rng(blocks).normal(0.2, 1, (blocks, 3))
    queries = 50
    mean = values.mean(0)
    weight = np.full((blocks, 1), float(queries))
    interval = block_interval(mean, ratio_influence(queries * values, weight, mean), blocks)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(interval.low, expected.low, rtol=1e-9)
    np.testing.assert_allclose(interval.high, expected.high, rtol=1e-9)
    above_zero = stats.ttest_1samp(values, 0, alternative="greater")
    p_values = student_p_value(above_zero.statistic, blocks)
    np.testing.assert_allclose(p_values, above_zero.pvalue, rtol=1e-9)
