"""Three principal components of some vectors, the same ones each time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

AXES = 3


@dataclass(frozen=True, eq=False)
class Rotation:
    """What brings a vector onto the axes: (vector − mean) · axesᵀ."""

    mean: Float[Tensor, " width"]
    axes: Float[Tensor, "3 width"]
    """Orthonormal rows, the one of most variance first; zero where the vectors span fewer."""

    def of(self, vectors: Float[Tensor, "point width"]) -> Float[Tensor, "point 3"]:
        """Where vectors lie on the axes."""
        return (vectors.double() - self.mean) @ self.axes.T


def principal_axes(vectors: Float[Tensor, "point width"]) -> Rotation:
    """The axes of most variance, by the singular values of the centred vectors.

    An axis and its opposite serve alike: the entry of largest size is made positive, the first of
    equals, so that the same vectors always give the same axes.

    >>> found = principal_axes(torch.tensor([[0.0, -1.0], [0.0, 1.0], [0.0, 3.0]]))
    >>> found.axes.round(decimals=6).tolist()
    [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    exact = vectors.double().cpu()
    mean = exact.mean(0)
    _, sizes, rows = torch.linalg.svd(exact - mean, full_matrices=False)
    kept = rows[:AXES][sizes[:AXES] > sizes[:1] * 1e-9]
    largest = kept.gather(1, kept.abs().argmax(1, keepdim=True))
    axes = exact.new_zeros(AXES, exact.shape[1])
    axes[: len(kept)] = kept * largest.sign()
    return Rotation(mean, axes)
