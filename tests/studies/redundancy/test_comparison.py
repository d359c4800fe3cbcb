"""Tests of groups of heads on divergences made by hand."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from headscope.studies.redundancy import Divergences, group_tests, permutation_p

HEADS = pd.DataFrame(
    {
        "layer": [0, 0, 0, 0, 1, 1, 1, 1],
        "head": [0, 1, 2, 3] * 2,
        "kv_group": [0, 0, 1, 1] * 2,
        "primary": [
            "induction", "positional", "unclassified", "induction",
            "positional", "induction", "induction", "unclassified",
        ],
    }
)  # fmt: skip


def made(means: np.ndarray, *, windows: int = 10, noise: float = 0.0) -> Divergences:
    rng = np.random.default_rng(0)
    sums = 4 * (means + noise * rng.standard_normal((windows, len(means))))
    return Divergences(sums, np.full(windows, 4))


def pairs_by_hand(of: object, heads: pd.DataFrame = HEADS) -> np.ndarray:
    rows = list(heads.itertuples())
    return np.array([of(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]])


def numbers_of(
    heads: pd.DataFrame, divergences: Divergences, seed: int = 0
) -> dict[str, list[float]]:
    """The numbers of each line by its group."""
    return {
        line.split(" differ")[0].removeprefix("heads of the same "): [
            float(number) for number in re.findall(r"[-+]?\d\.\d{3}", line)
        ]
        for line in group_tests(heads, divergences, seed=seed)
    }


def test_a_head_of_its_own_keys_and_values_makes_no_groups():
    alone = HEADS.assign(kv_group=HEADS["head"])
    assert list(numbers_of(alone, made(np.full(28, 0.5)))) == ["type"]


def test_a_difference_is_that_of_the_pairs_means():
    means = np.random.default_rng(1).random(28)
    typed = pairs_by_hand(lambda a, b: "unclassified" not in (a.primary, b.primary))
    same = pairs_by_hand(lambda a, b: a.primary == b.primary)
    expected = means[typed & same].mean() - means[typed & ~same].mean()
    assert numbers_of(HEADS, made(means))["type"][0] == pytest.approx(expected, abs=6e-4)


def test_an_interval_is_as_wide_as_the_windows_differ():
    """±1.96 standard errors of the mean of independent windows."""
    level = np.random.default_rng(2).normal(0.5, 0.1, size=400)
    near = pairs_by_hand(lambda a, b: a.primary == b.primary)
    divergences = Divergences(np.outer(level, near) * 3, np.full(400, 3))
    _, low, high, _ = numbers_of(HEADS, divergences)["type"]
    half = 1.96 * level.std() / 20
    assert high - low == pytest.approx(2 * half, rel=0.15)
    assert low < level.mean() < high


def test_few_windows_have_no_interval():
    assert len(numbers_of(HEADS, made(np.full(28, 0.5), windows=7))["type"]) == 2


def test_groups_that_are_alike_have_the_p_value_of_counting():
    near = pairs_by_hand(lambda a, b: (a.layer, a.kv_group) != (b.layer, b.kv_group))
    difference, *_, p_value = numbers_of(HEADS, made(near.astype(float)))["key/value group"]
    assert difference == -1
    # in each of two layers, 1 of the 3 ways to pair 4 heads
    assert p_value == pytest.approx(1 / 9, abs=0.03)


def test_a_layer_alone_does_not_pass_for_a_type():
    """Types that are nothing but layers: shuffled within a layer they stay what they are."""
    layered = HEADS.assign(primary=np.where(HEADS["layer"] == 0, "positional", "induction"))
    near = np.where(pairs_by_hand(lambda a, b: a.layer == b.layer), 0.1, 0.8)
    assert numbers_of(layered, made(near))["type"][-1] == 1


def test_a_head_in_no_considered_pair_keeps_its_label():
    """Three labelled heads of which two agree: 1 of 3 placings; the fourth must not change that."""
    one, other = np.triu_indices(4, 1)
    distances = np.where((one == 0) & (other == 1), 0.0, 1.0)
    p_value = permutation_p(
        distances, other < 3, np.array([5, 5, 6, 7]), np.zeros(4, int), np.random.default_rng(0)
    )
    assert p_value == pytest.approx(1 / 3, abs=0.06)


def test_the_same_seed_gives_the_same_numbers():
    divergences = made(np.random.default_rng(3).random(28), noise=0.1)
    one, again, other = (numbers_of(HEADS, divergences, seed) for seed in (0, 0, 1))
    assert one == again != other
