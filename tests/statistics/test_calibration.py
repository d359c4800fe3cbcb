"""Intervals, q values and sign flips on simulated tallies, whose truth is known."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from headscope.measure.tally import BLOCKS, Tally
from headscope.relations import relations_of
from headscope.statistics.estimates import adjusted, weigh
from headscope.statistics.relation_sums import EXACT_BLOCKS, least_p, sign_flip_p

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


def by_hand(differences: list[float]) -> float:
    """Each change of signs, one after the other."""
    observed = sum(differences)
    sums = [
        sum(sign * one for sign, one in zip(signs, differences, strict=True))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum(total >= observed - 1e-12 for total in sums) / len(sums)


@pytest.mark.parametrize("blocks", [1, 2, 5, 9, EXACT_BLOCKS])
def test_few_blocks_give_the_p_value_of_every_change_of_signs(blocks):
    rng = np.random.default_rng(blocks)
    differences = rng.normal(0.3, 1, (blocks, 4))
    differences[0, 0] = 0  # a block that says nothing counts on both sides
    expected = [by_hand(column.tolist()) for column in differences.T]
    assert sign_flip_p(differences) == pytest.approx(expected)


def test_many_blocks_give_nearly_that_of_students_test_and_the_same_every_time():
    differences = np.random.default_rng(0).normal(0.15, 1, (64, 30))
    expected = stats.ttest_1samp(differences, 0, alternative="greater").pvalue
    found = sign_flip_p(differences, seed=3)
    assert np.abs(found - expected).max() < 0.03
    assert (found == sign_flip_p(differences, seed=3)).all()
    assert (found != sign_flip_p(differences, seed=4)).any()


@pytest.mark.parametrize("blocks", [8, 12, 24, 64])
@pytest.mark.parametrize("level", [0.01, 0.025])
def test_heads_that_know_nothing_pass_at_most_at_the_level(blocks, level):
    rng = np.random.default_rng(blocks)
    # attention is skewed and some blocks hold many queries, yet neither side is preferred
    size = rng.integers(1, 6, (blocks, 1)) * rng.exponential(1, (blocks, 4000))
    nothing = size * rng.choice([-1, 1], (blocks, 4000))
    passed = (sign_flip_p(nothing) <= level).mean()
    assert passed < level + 3 * (level / 4000) ** 0.5
    knows = nothing + 2 * size  # above 0 in every block
    assert (sign_flip_p(knows) <= level).all()


def test_the_least_p_value_is_that_of_a_head_that_is_right_in_every_block():
    for blocks in (1, 7, 8, EXACT_BLOCKS, 40):
        assert sign_flip_p(np.ones((blocks, 1))) == pytest.approx([least_p(blocks)], abs=1e-9)
