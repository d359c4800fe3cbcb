"""K-composition: does a later head find its keys by what an earlier head wrote?

An induction head looks for the token after an earlier copy of its own, so that its keys must carry
what a previous-token head put there (Elhage et al. 2021, "Three Kinds of Composition"; Olsson et
al. 2022).

And the space that heads write to: how much, in how many directions, and which of a layer alike. A
head's write covariance is C = W_OVᵀ W_OV over d_model: the second moment of what it writes when it
reads vectors that point anywhere with equal chance. It belongs to W_OV = W_V W_O, and so does not
depend on how that is split into V and O.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.studies.weights.factors import HeadFactors

DRAWS = 64
"""Random heads of either kind: their 4,096 pairs give a 99.9th percentile."""


@dataclass(frozen=True)
class Chance:
    """K-composition of heads whose matrices are random."""

    mean: float
    p999: float
    """The 99.9th percentile."""


def k_composition(factors: HeadFactors) -> Float[Tensor, "earlier source layer head"]:
    """‖W_OV¹ W_QK²ᵀ‖ / (‖W_OV¹‖ ‖W_QK²‖) for each head 2 and earlier head 1, in [0, 1]; else NaN.

    Norms are Frobenius norms. With row vectors, W_OV = W_V W_O and W_QK = W_Q W_Kᵀ, whose rows face
    the query and whose columns face the key. What the earlier head writes meets the key side:
    (W_V W_O)¹ (W_K W_Qᵀ)². Elhage et al. (2021) write columns, and thus W_QKᵀ W_OV; it is
    TransformerLens' `all_composition_scores("K")`. Two unrelated heads score about 1/√d_model.
    Rotary embedding turns queries and keys by their distance: here they are as at distance 0.
    """
    writes, reads = factors.writes(), factors.key_reads()
    layers, heads = writes.shape[:2]
    scores = torch.full((layers, heads, layers, heads), torch.nan)
    for later in range(layers):
        for earlier in range(later):
            scores[earlier, :, later] = compositions(writes[earlier], reads[later])
    return scores


def compositions(
    writes: Float[Tensor, "source d_value d_model"], reads: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "source head"]:
    """‖write read‖ / (‖write‖ ‖read‖) for every pair; NaN where one of them is 0."""
    (source, d_value, _), (head, _, d_head) = writes.shape, reads.shape
    product = writes.flatten(0, 1) @ reads.transpose(0, 1).flatten(1)
    norms = product.reshape(source, d_value, head, d_head).square().sum((1, 3)).sqrt()
    return norms / torch.outer(torch.linalg.matrix_norm(writes), torch.linalg.matrix_norm(reads))


def random_composition(factors: HeadFactors, *, seed: int = 0) -> Chance:
    """K-composition of heads of the same shapes whose matrices are drawn from a normal.

    Where a LayerNorm takes one dimension out of reads and writes, the draws have one less too.
    It is a low bar, since all trained heads prefer some directions: a third of the pairs of `mini`
    pass its 99.9th percentile. Which earlier head is best says more.
    """
    generator = torch.Generator().manual_seed(seed)
    d_head, d_value = factors.query.shape[-1], factors.value.shape[-1]

    def draw(columns: int) -> Tensor:
        return torch.randn(1, DRAWS, factors.free, columns, generator=generator)

    value, output = draw(d_value), draw(d_value).transpose(-1, -2)
    random = HeadFactors(draw(d_head), draw(d_head), value, output, factors.free)
    scores = compositions(random.writes()[0], random.key_reads()[0]).double()
    return Chance(float(scores.mean()), float(scores.quantile(0.999)))


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


def effective_ranks(factors: HeadFactors) -> tuple[Tensor, Tensor]:
    """Effective ranks of each head's QK and OV circuits, `[layer head]` each, in [1, d_head].

    exp(−Σ p log p) of the singular values' shares p of their sum: 1 for a circuit of one direction,
    the rank if all its singular values are alike (Roy and Vetterli 2007, The effective rank,
    definition 1). Those of W_Q W_Kᵀ and W_V W_O, d_model × d_model, are those of a product of
    d_head × d_head triangles. Rotary positions and norms of queries and keys are left out. NaN for
    a circuit that is 0.
    """
    return (
        _effective_rank(factors.query, factors.key),
        _effective_rank(factors.value, factors.output.transpose(-1, -2)),
    )


def _effective_rank(
    read: Float[Tensor, "layer head d_model d_head"],
    write: Float[Tensor, "layer head d_model d_head"],
) -> Float[Tensor, "layer head"]:
    """Of read @ writeᵀ."""
    triangles = [torch.linalg.qr(side.double(), mode="r").R for side in (read, write)]
    values = torch.linalg.svdvals(triangles[0] @ triangles[1].transpose(-1, -2))
    shares = values / values.sum(-1, keepdim=True)
    rank: Tensor = torch.special.entr(shares).sum(-1).exp()
    return rank


def _inner_products(
    writes: Float[Tensor, "head d_value d_model"],
) -> Float[Tensor, "head other"]:
    """⟨C¹, C²⟩ = ‖P¹ P²ᵀ‖² where C = PᵀP."""
    heads, d_value, _ = writes.shape
    rows = writes.flatten(0, 1)
    return (rows @ rows.T).reshape(heads, d_value, heads, d_value).square().sum((1, 3))
