"""Clusters of heads that are alike, and a map of heads: points in a plane whose distances are as
close to those given as can be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

MAX_CLUSTERS = 40
"""More clusters are not tried: a table or a map of more could not be read."""


class Clusters(NamedTuple):
    """The cluster of each head."""

    numbers: Int[ndarray, " head"]
    """From 1, the largest cluster first; of equal ones, that with the earliest head."""
    silhouette: float
    """The mean silhouette, in [−1, 1]; NaN for a single cluster."""


def cluster(distances: Float[ndarray, " pair"]) -> Clusters:
    """Cluster heads by average linkage (Sokal and Michener 1958).

    Average linkage weighs all pairs of two clusters alike: single linkage chains heads that differ,
    and Ward's assumes round clusters. The tree is cut into the number of clusters, from 2 to 40,
    with the largest mean silhouette (Rousseeuw 1987), the fewest of equals.

    Args:
        distances: of all pairs of at least two heads, in condensed order; a metric.
    """
    square = squareform(distances)
    tree = linkage(distances, "average")
    best = Clusters(np.ones(len(square), np.int64), float("nan"))
    for count in range(2, min(len(square) - 1, MAX_CLUSTERS) + 1):
        numbers = fcluster(tree, count, "maxclust").astype(np.int64)
        if numbers.max() > 1:
            value = silhouette(square, numbers)
            if not value <= best.silhouette:
                best = Clusters(numbers, value)
    return Clusters(_by_size(best.numbers), best.silhouette)


def silhouette(distances: Float[ndarray, "head head"], numbers: Int[ndarray, " head"]) -> float:
    """The mean of (b − a) / max(a, b) over heads (Rousseeuw 1987); 0 for a head alone.

    a is a head's mean distance to the others of its cluster, b that to the nearest other cluster.
    Above 0.5 clusters are clear, below 0.25 there are none to speak of (Kaufman and Rousseeuw
    1990, table 4).
    """
    _, numbers = np.unique(numbers, return_inverse=True)
    member = np.eye(numbers.max() + 1)[numbers]
    sizes = member.sum(0)
    sums = distances @ member
    is_member = numbers[:, None] == np.arange(len(sizes))
    inside = sums[is_member] / np.maximum(sizes[numbers] - 1, 1)
    outside = np.where(is_member, np.inf, sums / sizes).min(1)
    larger = np.maximum(inside, outside)
    alone = (sizes[numbers] == 1) | (larger == 0)
    return float(np.where(alone, 0, (outside - inside) / np.where(larger > 0, larger, 1)).mean())


class Plane(NamedTuple):
    """Points in a plane."""

    points: Float[ndarray, "head 2"]
    """Around 0, in the unit of the distances; the first axis spreads the most."""
    variance_share: float
    """The share of all variance that the plane shows, in [0, 1]; NaN when all points are one."""


def plane(distances: Float[ndarray, "head head"]) -> Plane:
    """Classical multidimensional scaling (Torgerson 1952; Gower 1966).

    Twice centred, −½ d² is the matrix of inner products of the points; its first two eigenvectors,
    each times the root of its eigenvalue, are their coordinates. Each axis points to where its
    farthest point lies, so that the same distances always give the same map.
    """
    squares = distances**2
    inner = -(squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()) / 2
    values, vectors = np.linalg.eigh(inner)
    largest = np.argsort(values)[::-1][:2]
    eigenvalues = values[largest].clip(0)
    points = np.zeros((len(distances), 2))
    points[:, : len(largest)] = vectors[:, largest] * np.sqrt(eigenvalues)
    farthest = points[np.abs(points).argmax(0), [0, 1]]
    total = values.clip(0).sum()
    variance_share = float(eigenvalues.sum() / total) if total > 0 else float("nan")
    return Plane(points * np.where(farthest < 0, -1, 1), variance_share)


def _by_size(numbers: Int[ndarray, " head"]) -> Int[ndarray, " head"]:
    """The same clusters numbered from 1, the largest first."""
    _, first, inverse, sizes = np.unique(
        numbers, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(sizes), np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(1, len(sizes) + 1)
    ranked: Int[ndarray, " head"] = rank[inverse]
    return ranked
