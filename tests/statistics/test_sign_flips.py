"""The randomisation test of contested queries, against every change of signs and at its level."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from headscope.statistics.relation_sums import EXACT_BLOCKS, least_p, sign_flip_p


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
    from scipy import stats

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
