"""The space that heads write to: how much, in how many directions, and which of a layer alike.

A head's write covariance is C = W_OVᵀ W_OV over d_model: the second moment of what it writes when
it reads vectors that point anywhere with equal chance. It belongs to W_OV = W_V W_O, and so does
not depend on how that is split into V and O.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.studies.weights.factors import HeadFactors


@dataclass(frozen=True)
class WeightWrites:
    """Evidence on the heads' writes from the weights."""

    output_norm: Float[Tensor, "layer head"]
    """‖W_O‖, Frobenius; how V and O share a head's gain is the model's choice."""
    circuit_norm: Float[Tensor, "layer head"]
    """‖W_V W_O‖, Frobenius."""
    dimensions: Float[Tensor, "layer head"]
    """(tr C)² / ‖C‖²: directions that the head writes to, in [1, d_head]; d_head if all alike."""
    cosine: Float[Tensor, "layer head other"]
    """⟨C¹, C²⟩ / (‖C¹‖ ‖C²‖), in [0, 1]: 1 for the same directions in the same shares, 0 for
    orthogonal subspaces."""
    chance: Float[Tensor, "layer head other"]
    """About what the cosine of unrelated heads is: √(dimensions¹ dimensions²) / d_model."""


def write_evidence(factors: HeadFactors) -> WeightWrites:
    """The writes of every head, those of one layer compared with each other."""
    writes = factors.writes()
    products = torch.stack([_inner_products(layer) for layer in writes])
    size = torch.linalg.matrix_norm(writes)
    diagonal = products.diagonal(dim1=-2, dim2=-1)
    dimensions = size**4 / diagonal
    pairs = dimensions[:, :, None] * dimensions[:, None, :]
    return WeightWrites(
        output_norm=torch.linalg.matrix_norm(factors.output),
        circuit_norm=size,
        dimensions=dimensions,
        cosine=products / (diagonal[:, :, None] * diagonal[:, None, :]).sqrt(),
        chance=pairs.sqrt() / factors.free,
    )


def _inner_products(
    writes: Float[Tensor, "head d_value d_model"],
) -> Float[Tensor, "head other"]:
    """⟨C¹, C²⟩ = ‖P¹ P²ᵀ‖² where C = PᵀP."""
    heads, d_value, _ = writes.shape
    rows = writes.flatten(0, 1)
    return (rows @ rows.T).reshape(heads, d_value, heads, d_value).square().sum((1, 3))
