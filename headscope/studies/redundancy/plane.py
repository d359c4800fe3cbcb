"""A map of heads: points in a plane whose distances are as close to those given as can be."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray


class Plane(NamedTuple):
    """Points in a plane."""

    points: Float[ndarray, "head 2"]
    """Around 0, in the unit of the distances; the first axis spreads the most."""
    shown: float
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
    kept = values[largest].clip(0)
    points = np.zeros((len(distances), 2))
    points[:, : len(largest)] = vectors[:, largest] * np.sqrt(kept)
    farthest = points[np.abs(points).argmax(0), [0, 1]]
    total = values.clip(0).sum()
    shown = float(kept.sum() / total) if total > 0 else float("nan")
    return Plane(points * np.where(farthest < 0, -1, 1), shown)
