"""Divergences, clusters and the map against slow loops, scipy and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist, squareform

from headscope.measure.study_windows import evenly
from headscope.studies.redundancy import (
    cluster,
    divergence_sums,
    head_divergences,
    plane,
    silhouette,
)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """Rows that sum to 1, some keys with no attention at all."""
    rng = np.random.default_rng(seed)
    rows = rng.random(shape) ** 6 * (rng.random(shape) < 0.7)
    rows[..., 0] += 1e-3
    return rows / rows.sum(-1, keepdims=True)


def by_definition(p: np.ndarray, q: np.ndarray) -> float:
    total = 0.0
    for a, b in zip(p.tolist(), q.tolist(), strict=True):
        middle = (a + b) / 2
        total += a / 2 * math.log2(a / middle) if a else 0.0
        total += b / 2 * math.log2(b / middle) if b else 0.0
    return total


def test_divergences_are_those_of_the_definition_pair_by_pair():
    rows = drawn(6, 40)
    found = squareform(head_divergences(torch.from_numpy(rows)))
    for i in range(6):
        for j in range(6):
            assert found[i, j] == pytest.approx(by_definition(rows[i], rows[j]), abs=1e-12)
            assert found[i, j] == found[j, i]


def test_half_a_common_key_has_its_closed_form():
    # p = (1, 0), q = (½, ½): H(¾, ¼) − ½ · 1 bit
    rows = torch.tensor([[1, 0], [0.5, 0.5]], dtype=torch.double)
    expected = -0.75 * math.log2(0.75) - 0.25 * math.log2(0.25) - 0.5
    assert head_divergences(rows)[0] == pytest.approx(expected, abs=1e-15)


def test_sums_add_queries_and_read_no_later_key():
    patterns = np.tril(drawn(4, 12, 12, seed=3))
    patterns /= patterns.sum(-1, keepdims=True)
    queries = np.array([2, 7, 11])
    slow = [
        sum(by_definition(patterns[i, q], patterns[j, q]) for q in queries)
        for i in range(4)
        for j in range(i + 1, 4)
    ]
    sampled = torch.from_numpy(patterns[:, queries])
    before = sampled.clone()
    np.testing.assert_allclose(divergence_sums(sampled, queries), slow, atol=1e-12)
    assert torch.equal(sampled, before)


@pytest.mark.parametrize(
    ("size", "count", "expected"),
    [(10, 2, [2, 7]), (3, 8, [0, 1, 2]), (9, 1, [4]), (0, 4, []), (6, 6, [0, 1, 2, 3, 4, 5])],
)
def test_places_are_evenly_spread(size, count, expected):
    assert evenly(size, count).tolist() == expected


def test_the_map_gives_back_the_distances_of_points_in_a_plane():
    points = np.random.default_rng(4).normal(size=(15, 2)) * [3, 1]
    found, share = plane(squareform(pdist(points)))
    np.testing.assert_allclose(pdist(found), pdist(points), atol=1e-9)
    assert share == pytest.approx(1)
    assert found[:, 0].var() > found[:, 1].var()
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-12)


def test_the_map_says_how_much_a_plane_leaves_out():
    # a regular tetrahedron: three equal axes, of which a plane has two
    assert plane(1 - np.eye(4))[1] == pytest.approx(2 / 3)


def test_a_map_of_equal_heads_is_one_point_and_shows_no_share():
    points, share = plane(np.zeros((3, 3)))
    assert not points.any()
    assert math.isnan(share)


def test_separate_groups_are_found_and_numbered_by_size():
    places = np.array([10.0, 0, 0.1, 10.1, 0.2, 50])
    numbers, clarity = cluster(pdist(places[:, None]))
    assert numbers.tolist() == [2, 1, 1, 2, 1, 3]
    assert clarity == pytest.approx(silhouette(squareform(pdist(places[:, None])), numbers))


def test_clusters_are_those_with_the_best_silhouette_of_all_cuts():
    from scipy.cluster.hierarchy import fcluster, linkage

    distances = pdist(np.random.default_rng(5).normal(size=(14, 3)))
    tree = linkage(distances, "average")
    cuts = [fcluster(tree, k, "maxclust") for k in range(2, 14)]
    best = max(silhouette(squareform(distances), cut) for cut in cuts)
    assert cluster(distances)[1] == pytest.approx(best)


def test_the_silhouette_is_that_of_a_slow_loop():
    rng = np.random.default_rng(6)
    d = squareform(pdist(rng.normal(size=(12, 2))))
    numbers = np.array([1, 1, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9])
    values = []
    for i in range(12):
        own = [j for j in range(12) if numbers[j] == numbers[i] and j != i]
        if not own:
            values.append(0.0)
            continue
        a = np.mean([d[i, j] for j in own])
        b = min(
            np.mean([d[i, j] for j in range(12) if numbers[j] == k])
            for k in set(numbers.tolist()) - {numbers[i]}
        )
        values.append((b - a) / max(a, b))
    assert silhouette(d, numbers) == pytest.approx(np.mean(values))


@pytest.mark.parametrize("heads", [2, 3, 5])
def test_equal_heads_are_one_cluster(heads):
    numbers, clarity = cluster(np.zeros(heads * (heads - 1) // 2))
    assert numbers.tolist() == [1] * heads
    assert math.isnan(clarity)
