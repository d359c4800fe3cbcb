"""The Q, K, V and O matrices of every head, with the layer norms folded into them.

What is folded is what TransformerLens folds (`ProcessWeights`, options `fold_ln`,
`center_writing_weights` and `center_unembed`), on copies: the model itself stays as it is.

- `fold_ln`: the gain of a block's first norm is multiplied into the rows of W_Q, W_K and W_V, and
  the last norm's into those of W_U; a norm that counts its gain from 1 (Gemma) gets the 1 added.
  A LayerNorm also subtracts the mean of its input: the mean over d_model of W_Q, W_K, W_V and W_U
  is taken out, which does the same. An RMSNorm subtracts nothing, so nothing is taken out.
  Biases, the norms' own among them, belong to no circuit here and are left out.
- `center_writing_weights`: of a LayerNorm model the mean over d_model of W_O is taken out, which
  nothing reads; that of W_E is left to W_V, which drops it. With RMSNorm both stay.
- `center_unembed`: the mean over the vocabulary of W_U is taken out: the softmax ignores it.
- `fold_value_biases` moves biases only, and refactoring changes no product; both are left out.

What a norm does besides, the division by the length of its input, is no matrix and stays out;
norms of queries and keys (Qwen3) too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.load import Model

LAYER_NORMS, RMS_NORMS = ("LN", "LNPre"), ("RMS", "RMSPre")


@dataclass(frozen=True)
class HeadFactors:
    """The folded matrices of all query heads, in float32 on the CPU.

    A row vector x of the residual stream gives the query `x @ query`, the key `x @ key`, and the
    write `x @ value @ output`. Heads that share their keys and values (grouped queries) each
    hold their group's.
    """

    query: Float[Tensor, "layer head d_model d_head"]
    key: Float[Tensor, "layer head d_model d_head"]
    value: Float[Tensor, "layer head d_model d_value"]
    output: Float[Tensor, "layer head d_value d_model"]
    free: int
    """Dimensions of the residual stream in which reads and writes can lie: d_model, or
    d_model − 1 where the mean is taken out of both."""

    def writes(self) -> Float[Tensor, "layer head d_value d_model"]:
        """R W_O with W_V = QR: d_value rows that stand for all of W_V W_O.

        Q only turns rows: no Frobenius norm feels it, and no product on the right.
        """
        small: Tensor = torch.linalg.qr(self.value, mode="r").R
        return small @ self.output

    def key_reads(self) -> Float[Tensor, "layer head d_model d_head"]:
        """W_K Rᵀ with W_Q = QR, which stands for W_K W_Qᵀ likewise."""
        small: Tensor = torch.linalg.qr(self.query, mode="r").R
        return self.key @ small.transpose(-1, -2)


def head_factors(model: Model) -> HeadFactors:
    """The folded matrices of a model.

    Raises:
        ModelError: its norms cannot be folded into its matrices, or a layer shows none.
    """
    check_foldable(model)
    parts = [_layer(model, layer) for layer in range(model.layers)]
    query, key, value, output = (torch.stack(matrices) for matrices in zip(*parts, strict=True))
    return HeadFactors(query, key, value, output, query.shape[-2] - writes_centred(model))


def check_foldable(model: Model) -> None:
    """Check that folding is defined for a model: norms stand before attention, and are known.

    Raises:
        ModelError: it is not.
    """
    kind = getattr(model.bridge.cfg, "normalization_type", None)
    if kind not in LAYER_NORMS + RMS_NORMS:
        raise ModelError(
            f"{model.name}: its norms are of the kind {kind!r}; the weights are read through "
            f"{', '.join(LAYER_NORMS + RMS_NORMS)} only"
        )
    blocks = [block._modules for block in model.bridge.blocks]
    placed = all("ln1" in block and "ln1_post" not in block for block in blocks)
    folds = getattr(model.bridge.adapter, "supports_fold_ln", True)
    if not (placed and folds and "ln_final" in model.bridge._modules):
        raise ModelError(
            f"{model.name}: the norms of a {model.architecture} do not fold into its heads' "
            "matrices: that takes a norm before attention, none behind it, and an architecture for "
            "which TransformerLens folds; headscope classify needs no folding"
        )


def reads_centred(model: Model) -> bool:
    """True where the norms subtract the mean of what they read."""
    return model.bridge.cfg.normalization_type in LAYER_NORMS


def writes_centred(model: Model) -> bool:
    """True where nothing reads the mean of what is written: all norms, the last too, drop it."""
    # TransformerLens calls the last norm of models with RMSNorm throughout `final_rms` too
    return reads_centred(model) and not getattr(model.bridge.cfg, "final_rms", False)


def gain(model: Model, norm: Any) -> Float[Tensor, " d_model"] | float:
    """The factor of a norm on its normalised input; 1 for a norm without a gain."""
    weight = getattr(norm, "weight", None)
    if weight is None:
        return 1.0
    offset = 1.0 if getattr(model.bridge.cfg, "rmsnorm_uses_offset", False) else 0.0
    return plain(weight) + offset


def plain(weight: Tensor) -> Tensor:
    """A weight as float32 on the CPU, without gradients."""
    return weight.detach().to("cpu", torch.float32)


def centre(weight: Tensor, dim: int) -> Tensor:
    """A weight less its mean along one dimension."""
    return weight - weight.mean(dim, keepdim=True)


def _layer(model: Model, layer: int) -> tuple[Tensor, ...]:
    """Q, K, V [head d_model d_head] and O [head d_head d_model] of one layer."""
    block = model.bridge.blocks[layer]
    candidates = [getattr(block.attn, f"W_{name}", None) for name in "QKVO"]
    matrices = [plain(matrix) for matrix in candidates if isinstance(matrix, Tensor)]
    if len(matrices) < len(candidates) or any(matrix.ndim != 3 for matrix in matrices):
        raise ModelError(f"{model.name}: layer {layer} shows no Q, K, V and O matrix of each head")
    scale = gain(model, block.ln1)
    scale = scale[:, None] if isinstance(scale, Tensor) else scale
    reads = [scale * matrix for matrix in matrices[:3]]
    if reads_centred(model):
        reads = [centre(matrix, -2) for matrix in reads]
    output = centre(matrices[3], -1) if writes_centred(model) else matrices[3]
    return (*(_per_query_head(model, layer, matrix) for matrix in reads), output)


def _per_query_head(model: Model, layer: int, matrix: Tensor) -> Tensor:
    """Query head h reads the key/value head h // (heads per group)."""
    groups = matrix.shape[0]
    if model.heads % groups:
        raise ModelError(
            f"{model.name}: layer {layer} has {groups} key/value heads, which do not divide its "
            f"{model.heads} query heads"
        )
    return matrix.repeat_interleave(model.heads // groups, 0)
