"""Are heads of the same layer, key/value group or type more alike than others?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.measure.bootstrap import interval, resample
from headscope.measure.tally import MIN_BLOCKS
from headscope.statistics.tags import NO_TYPE
from headscope.studies.redundancy.divergence import Divergences

SHUFFLES = 1_000
GROUPS = ["group", "pairs", "mean", "ci_low", "ci_high"]
TESTS = ["test", "difference", "ci_low", "ci_high", "p_value", "shuffled"]
SAME_TYPE, OTHER_TYPE = "same type", "other type"
SAME_GROUP, OTHER_GROUP = "same key/value group", "other group of the layer"


class GroupTests(NamedTuple):
    """Groups of pairs of heads, and tests of one group against another."""

    groups: pd.DataFrame
    """`group`, its `pairs`, their `mean` divergence in bits, and its 95 % interval."""
    tests: pd.DataFrame
    """`test`, the `difference` of two groups' means with its 95 % interval, and the one-sided
    `p_value` of a difference below 0 when labels are shuffled over `shuffled`."""


def compare_groups(heads: pd.DataFrame, divergences: Divergences, *, seed: int) -> GroupTests:
    """Compare groups of pairs of heads, and test same type and same group against the rest.

    Intervals are percentile bootstraps over windows (queries of a window depend on each other),
    1,000 resamples, the heads held as they are; NaN with fewer than 8 windows. Pairs with a head
    without a type are in no group of types.

    Args:
        heads: `layer`, `kv_group` and `primary` of each head, in the order of the pairs.
        divergences: of all pairs of these heads.
        seed: seeds the bootstrap and the permutations.
    """
    rng = np.random.default_rng(seed)
    pairs = {name: mask for name, mask in pair_groups(heads).items() if mask.any()}
    means = {name: divergences.sums[:, mask].mean(1) for name, mask in pairs.items()}
    draws = resample(len(divergences.queries), rng)
    rows = [
        (name, int(mask.sum()), *_mean(means[name], divergences.queries, draws))
        for name, mask in pairs.items()
    ]
    tests = []
    for name, baseline, labels, strata, shuffled in _tests(heads):
        if name in pairs and baseline in pairs:
            difference = _mean(means[name] - means[baseline], divergences.queries, draws)
            considered = pairs[name] | pairs[baseline]
            p_value = permutation_p(divergences.mean, considered, labels, strata, rng)
            tests.append((f"{name} − {baseline}", *difference, p_value, shuffled))
    return GroupTests(pd.DataFrame(rows, columns=GROUPS), pd.DataFrame(tests, columns=TESTS))


def pair_groups(heads: pd.DataFrame) -> dict[str, Bool[ndarray, " pair"]]:
    """Marks the pairs of heads in each group; groups may overlap and may be empty."""
    one, other = np.triu_indices(len(heads), 1)

    def same(column: str) -> Bool[ndarray, " pair"]:
        values = heads[column].to_numpy()
        equal: Bool[ndarray, " pair"] = values[one] == values[other]
        return equal

    primary = heads["primary"].to_numpy()
    has_type = ~heads["primary"].isin(NO_TYPE).to_numpy(bool)
    typed = has_type[one] & has_type[other]
    layer, same_type = same("layer"), same("primary")
    group = layer & same("kv_group")
    # where no two heads share keys and values, every other head would be in another group
    elsewhere = layer & ~group & group.any()
    types = sorted(set(primary) - {*NO_TYPE})
    return {
        "all": np.ones(len(one), bool),
        "same layer": layer,
        SAME_GROUP: group,
        OTHER_GROUP: elsewhere,
        "other layers": ~layer,
        SAME_TYPE: typed & same_type,
        OTHER_TYPE: typed & ~same_type,
        **{f"both {name}": same_type & (primary[one] == name) for name in types},
    }


def permutation_p(
    distances: Float[ndarray, " pair"],
    considered: Bool[ndarray, " pair"],
    labels: Int[ndarray, " head"],
    strata: Int[ndarray, " head"],
    rng: np.random.Generator,
) -> float:
    """Share of shuffles after which heads are as close to those of their own label.

    The statistic is the mean distance of the considered pairs with the same label minus that of
    the others. Labels are shuffled within strata, 1,000 times; (k + 1) / 1,001 with k shuffles at
    or below what is found, never 0 (Phipson and Smyth 2010).
    """
    one, other = (index[considered] for index in np.triu_indices(len(labels), 1))
    distances = distances[considered]
    movable = np.zeros(len(labels), bool)
    movable[np.union1d(one, other)] = True
    # a head that is in no considered pair keeps its label
    strata = np.where(movable, strata, strata.max() + 1 + np.arange(len(labels)))
    order = np.argsort(strata, kind="stable")

    def label_distance(head_labels: Int[ndarray, " head"]) -> float:
        equal = head_labels[one] == head_labels[other]
        return float(distances[equal].mean() - distances[~equal].mean())

    statistic, below = label_distance(labels), 0
    for _ in range(SHUFFLES):
        permutation = np.lexsort((rng.random(len(labels)), strata))
        shuffled = labels.copy()
        shuffled[order] = labels[permutation]
        # the same pairs summed in another order differ in their last digits
        below += label_distance(shuffled) <= statistic + 1e-12
    return (below + 1) / (SHUFFLES + 1)


def _tests(heads: pd.DataFrame) -> list[tuple[str, str, ndarray, ndarray, str]]:
    """Two groups, the labels that tell them apart, and within what these may be shuffled.

    Types gather in layers, and layers differ: the second test asks for more than that.
    """
    layer = heads["layer"].to_numpy(np.int64)
    labels = heads["primary"].replace(NO_TYPE, "").to_numpy(str)
    types = np.unique(labels, return_inverse=True)[1]
    groups = np.unique(heads[["layer", "kv_group"]].to_numpy(), axis=0, return_inverse=True)[1]
    anywhere = np.zeros_like(layer)
    return [
        (SAME_TYPE, OTHER_TYPE, types, anywhere, "all heads"),
        (SAME_TYPE, OTHER_TYPE, types, layer, "the heads of a layer"),
        (SAME_GROUP, OTHER_GROUP, groups.ravel(), layer, "the heads of a layer"),
    ]


def _mean(
    sums: Float[ndarray, " window"], queries: Int[ndarray, " window"], draws: ndarray
) -> tuple[float, float, float]:
    """A mean over queries and its interval."""
    mean = float(sums.sum() / queries.sum())
    low, high = interval(sums, queries, draws, fewest=MIN_BLOCKS)
    return mean, float(low), float(high)
