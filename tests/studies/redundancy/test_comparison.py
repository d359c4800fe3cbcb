"""Groups of pairs, their intervals and permutation tests on made-up heads."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.special import comb

from headscope.studies.redundancy.divergence import Divergences
from headscope.studies.redundancy.group_tests import compare_groups, pair_groups, permutation_p

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


def pairs_by_hand(of: object) -> np.ndarray:
    rows = list(HEADS.itertuples())
    return np.array([of(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :]])


def test_groups_are_those_counted_by_hand():
    groups = {name: int(mask.sum()) for name, mask in pair_groups(HEADS).items()}
    assert groups == {
        "all": 28, "same layer": 12, "same key/value group": 4, "other group of the layer": 8,
        "other layers": 16, "same type": 7, "other type": 8, "both induction": 6,
        "both positional": 1,
    }  # fmt: skip


def test_a_head_of_its_own_keys_and_values_makes_no_groups():
    alone = HEADS.assign(kv_group=HEADS["head"])
    groups = compare_groups(alone, made(np.full(28, 0.5)), seed=0)
    assert not groups.groups["group"].str.contains("group").any()
    assert not groups.tests["test"].str.contains("group").any()


def test_means_are_those_of_the_pairs():
    means = np.random.default_rng(1).random(28)
    table = compare_groups(HEADS, made(means), seed=0).groups.set_index("group")
    layers = pairs_by_hand(lambda a, b: a.layer == b.layer)
    both = pairs_by_hand(lambda a, b: a.primary == b.primary == "induction")
    assert table.loc["same layer", "mean"] == pytest.approx(means[layers].mean())
    assert table.loc["other layers", "mean"] == pytest.approx(means[~layers].mean())
    assert table.loc["both induction", "mean"] == pytest.approx(means[both].mean())
    assert table.loc["all", "pairs"] == 28


def test_an_interval_is_as_wide_as_the_windows_differ():
    """±1.96 standard errors of the mean of independent windows."""
    level = np.random.default_rng(2).normal(0.5, 0.1, size=400)
    divergences = Divergences(np.repeat(level[:, None], 28, 1) * 3, np.full(400, 3))
    row = compare_groups(HEADS, divergences, seed=0).groups.iloc[0]
    half = 1.96 * level.std() / 20
    assert row["ci_high"] - row["ci_low"] == pytest.approx(2 * half, rel=0.15)
    assert row["ci_low"] < level.mean() < row["ci_high"]
    steady = compare_groups(HEADS, made(np.full(28, 0.5)), seed=0).groups
    np.testing.assert_allclose(steady[["ci_low", "ci_high"]], 0.5)


def test_few_windows_have_no_interval():
    table = compare_groups(HEADS, made(np.full(28, 0.5), windows=7), seed=0).groups
    assert table["ci_low"].isna().all()
    assert (table["mean"] == 0.5).all()


def test_heads_of_a_type_that_are_alike_are_found_and_others_are_not():
    near = np.where(pairs_by_hand(lambda a, b: a.primary == b.primary), 0.1, 0.8)
    found = compare_groups(HEADS, made(near, noise=0.01), seed=0).tests.set_index("shuffled")
    rows = found[found["test"] == "same type − other type"]
    assert rows.loc["all heads", "difference"] == pytest.approx(-0.7, abs=0.02)
    # 4 of 6 heads are induction: 1 of 15 ways to label them is the right one
    assert rows.loc["all heads", "p_value"] == pytest.approx(1 / 15, abs=0.03)
    far = compare_groups(HEADS, made(0.9 - near, noise=0.01), seed=0).tests
    assert far["p_value"][0] > 0.9


def test_groups_that_are_alike_have_the_p_value_of_counting():
    near = np.where(
        pairs_by_hand(lambda a, b: (a.layer, a.kv_group) == (b.layer, b.kv_group)), 0, 1
    )
    table = compare_groups(HEADS, made(near.astype(float)), seed=0).tests.set_index("test")
    row = table.loc["same key/value group − other group of the layer"]
    assert row["difference"] == pytest.approx(-1)
    # in each of two layers, 1 of the 3 ways to pair 4 heads
    assert row["p_value"] == pytest.approx(1 / 9, abs=0.03)


def test_a_layer_alone_does_not_pass_for_a_type():
    """Types that are nothing but layers: shuffled within a layer they stay what they are."""
    layered = HEADS.assign(primary=np.where(HEADS["layer"] == 0, "positional", "induction"))
    near = np.where(pairs_by_hand(lambda a, b: a.layer == b.layer), 0.1, 0.8)
    tests = compare_groups(layered, made(near), seed=0).tests
    p_values = tests[tests["test"] == "same type − other type"].set_index("shuffled")["p_value"]
    assert p_values["the heads of a layer"] == 1
    assert p_values["all heads"] == pytest.approx(2 / comb(8, 4), abs=0.02)


def test_a_head_in_no_considered_pair_keeps_its_label():
    """Three labelled heads of which two agree: 1 of 3 placings; the fourth must not change that."""
    one, other = np.triu_indices(4, 1)
    distances = np.where((one == 0) & (other == 1), 0.0, 1.0)
    p_value = permutation_p(
        distances, other < 3, np.array([5, 5, 6, 7]), np.zeros(4, int), np.random.default_rng(0)
    )
    assert p_value == pytest.approx(1 / 3, abs=0.06)


def test_the_same_seed_gives_the_same_numbers():
    means = np.random.default_rng(3).random(28)
    one, again, other = (compare_groups(HEADS, made(means, noise=0.1), seed=s) for s in (0, 0, 1))
    pd.testing.assert_frame_equal(one.groups, again.groups)
    pd.testing.assert_frame_equal(one.tests, again.tests)
    assert not one.groups["ci_low"].equals(other.groups["ci_low"])
