"""Are the intervals and q values what they say? Simulated tallies, whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations import relations_of
from headscope.statistics.estimates import adjusted, weigh

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


def test_the_same_seed_gives_the_same_intervals_and_another_seed_nearly():
    tally = simulated(np.full((1, 50), 0.1), np.random.default_rng(8))
    one, same, other = (weigh(tally, RELATIONS[:1], seed=s) for s in (0, 0, 1))
    assert (one["ci_low"] == same["ci_low"]).all()
    assert not (one["ci_low"] == other["ci_low"]).all()
    assert np.allclose(one["ci_low"], other["ci_low"], atol=0.01)


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_adjusted_p_values_are_scipy_s_to_the_last_bit(count):
    p_values = np.random.default_rng(4).random(count) ** 3
    p_values[::3] = p_values[0]  # ties
    assert np.array_equal(adjusted(p_values), stats.false_discovery_control(p_values))
