"""Intervals and q values on simulated tallies, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations import relations_of
from headscope.statistics.estimates import adjusted, preference, weigh
from headscope.statistics.relation_sums import RelationSums

RELATIONS = relations_of(["coreference"])[:3]


def simulated(
    lift: np.ndarray, rng: np.random.Generator, *, per_block: int = 12, between: float = 0.08
) -> Tally:
    """Sums over queries whose masses scatter, in blocks that differ from one another.

    `lift` is the true lift `[relation head]`. Blocks have between 6 and 18 queries.
    """
    relations, heads = lift.shape
    tally = Tally.zeros(tuple(r.id for r in RELATIONS[:relations]), 1, heads)
    queries = rng.integers(per_block // 2, per_block * 3 // 2 + 1, (BLOCKS, relations))
    tally.queries[:] = queries
    shift = rng.normal(0, between, (BLOCKS, relations, heads))
    # a mass on target or control lies in [0, 1] and is skewed, as attention is
    for b in range(BLOCKS):
        for r in range(relations):
            n = queries[b, r]
            control = rng.beta(0.4, 1.6, (n, heads)).sum(0)
            target = rng.beta(0.4, 1.6, (n, heads)).sum(0) + n * (lift[r] + shift[b, r])
            tally.control[b, r, 0], tally.target[b, r, 0] = control, target
    return tally


@pytest.mark.parametrize("lift", [0.0, 0.2])
def test_intervals_cover_the_truth_as_often_as_they_say(lift):
    heads = 2000
    tally = simulated(np.full((1, heads), lift), np.random.default_rng(5))
    evidence = weigh(tally, RELATIONS[:1], seed=0)
    covered = (evidence["ci_low"] <= lift) & (lift <= evidence["ci_high"])
    assert len(covered) == heads
    assert 0.93 <= covered.mean() <= 0.97


def test_false_discoveries_stay_below_the_level():
    rng = np.random.default_rng(6)
    false = found = missed = 0
    for _ in range(10):
        truth = np.where(rng.random((3, 400)) < 0.1, 0.15, 0.0)
        evidence = weigh(simulated(truth, rng), RELATIONS, seed=0)
        discovered = (evidence["q_value"] < 0.05).to_numpy().reshape(3, 400)
        found += discovered.sum()
        false += (discovered & (truth == 0)).sum()
        missed += (~discovered & (truth > 0)).sum()
    # Benjamini and Hochberg 1995: at most the level, times the share of nulls
    assert false / found <= 0.05
    assert missed / (0.1 * 3 * 400 * 10) < 0.05  # and what is there is found
    assert false > 0  # a check that nulls were among the candidates at all


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_adjusted_p_values_are_scipy_s_to_the_last_bit(count):
    p_values = np.random.default_rng(4).random(count) ** 3
    p_values[::3] = p_values[0]  # ties
    assert np.array_equal(adjusted(p_values), stats.false_discovery_control(p_values))


CORNERS = [[1.0, 0.0], [0.4, 0.6], [0.0, 0.8]]
"""Rates of baselines: one that is right at easy queries alone, one that is at 60 % of hard ones."""


def sums_of(hits: np.ndarray, queries: np.ndarray) -> RelationSums:
    nothing = np.zeros_like(hits)
    return RelationSums(nothing, nothing, hits, queries, queries[:, None], 0)


@pytest.mark.parametrize("between", [0.0, 0.3])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_mixture_of_two_baselines_rarely_exceeds_the_baselines(share, between):
    """The head follows either, document by document if `between` is large."""
    rng, heads = np.random.default_rng(3), 2000
    queries = rng.integers(1, 6, 30).astype(float)
    shares = np.clip(share + rng.normal(0, between, (30, heads)), 0, 1)
    easy, hard = (
        rng.binomial(queries[:, None].astype(int), rates).astype(float)
        for rates in (shares * 1.0 + (1 - shares) * 0.4, (1 - shares) * 0.6)
    )
    found = preference(sums_of(hard, queries), sums_of(easy, queries), CORNERS)
    assert np.mean(found.low > found.baseline_rate) < 0.05


@pytest.mark.parametrize(
    ("blocks", "queries", "rate", "largest"),
    [(16, 1, 0.8, 1), (12, 1, 0.7, 1), (16, 1, 0.9, 0.9), (40, 2, 0.9, 1), (40, 10, 0.5, 1)],
)
def test_few_queries_give_an_interval_with_the_mean_in_it(blocks, queries, rate, largest):
    """Preferences are 0 or `largest`. Student's interval alone is above a mean of 0.8 at 16 queries
    in 14 % of draws, because many draws have nearly no 0."""
    rng = np.random.default_rng(6)
    hits = rng.binomial(queries, rate, (blocks, 4000)) * float(largest)
    counts = np.full(blocks, float(queries))
    found = preference(sums_of(hits, counts), None, CORNERS)
    mean = rate * largest
    assert np.mean(found.low > mean) < 0.035
    assert np.mean(found.high < mean) < 0.035
    # nor is it much wider than the true error asks for
    true_error = largest * np.sqrt(rate * (1 - rate) / (blocks * queries))
    assert np.mean(found.high - found.low) < 2.6 * (2 * true_error)


def test_a_head_that_is_right_at_both_exceeds_every_mixture():
    queries = np.ones(20)
    hits = np.ones((20, 1))
    found = preference(sums_of(hits, queries), sums_of(hits, queries), CORNERS)
    # 20 of 20 hits are at least 0.84: Wilson 1927
    assert found.low[0] == pytest.approx(0.839, abs=1e-3)
    assert (found.rate[0], found.easy_rate[0], found.baseline_rate[0]) == (1, 1, 0)
    none = preference(sums_of(0 * hits, queries), None, CORNERS)
    assert none.high[0] == pytest.approx(1 - 0.839, abs=1e-3)
    few = preference(sums_of(hits[:7], queries[:7]), None, CORNERS)
    assert np.isnan(few.low).all()


def test_the_interval_includes_the_error_of_the_baselines_rate():
    """Rates of both kinds rise and fall together: along the line from (1, 0) to (0, 1) the
    difference of a head and the baselines has twice the error of its rate."""
    queries = np.full(16, 100.0)
    hits = np.tile([20.0, 60.0], 8)[:, None]
    found = preference(sums_of(hits, queries), sums_of(hits, queries), [[1.0, 0.0], [0.0, 1.0]])
    error_of_rate = np.std([0.2, 0.6] * 8, ddof=1) / np.sqrt(16)
    half_width = stats.t.ppf(0.975, 15) * 2 * error_of_rate
    assert found.low[0] == pytest.approx(0.4 - half_width)
    assert found.high[0] == pytest.approx(0.4 + half_width)
    alone = preference(sums_of(hits, queries), None, [[1.0, 0.0], [0.0, 1.0]])
    assert alone.low[0] > found.low[0]
