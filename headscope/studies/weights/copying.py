"""OV copying: does a head raise the logit of the token that it attends to?

The full OV circuit W_E W_V W_O W_U says how attending to one token changes every token's logit
(Elhage et al. 2021, A Mathematical Framework for Transformer Circuits, "Detecting Copying
Behavior"). A matrix with positive eigenvalues raises the tokens that it is given, on the whole.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.model_bridge.exceptions import StopAtLayerException

from headscope.errors import ModelError
from headscope.models.load import Model
from headscope.studies.weights.factors import (
    HeadFactors,
    centre,
    check_foldable,
    gain,
    plain,
    reads_centred,
    writes_centred,
)

CHUNK = 4096
"""Tokens at a time."""


def copying_scores(
    factors: HeadFactors, tokens: Float[Tensor, "out in"]
) -> Float[Tensor, "layer head"]:
    """Re(Σλ) / Σ|λ| over the eigenvalues of each head's full OV circuit, in [−1, 1].

    1 is pure copying, −1 the lowering of what is attended to. NaN for a head that writes nothing.
    The circuit is vocabulary × vocabulary, but W_O W_U W_E W_V, d_head × d_head, has the same
    eigenvalues other than 0 (those of AB and BA are the same), and zeros change neither sum.

    Args:
        factors: the folded matrices.
        tokens: W_U W_E, from `token_map`.
    """
    circuit = factors.output.double() @ tokens.double() @ factors.value.double()
    values: Tensor = torch.linalg.eigvals(circuit)
    return values.sum(-1).real / values.abs().sum(-1)


def token_map(model: Model, *, after_mlp: bool = False) -> Float[Tensor, "out in"]:
    """W_U W_E, summed over the vocabulary: what leaves and what enters the residual stream.

    W_U is folded and centred as `factors` says. W_E needs no centring: W_V drops its mean.

    Args:
        model: a loaded model.
        after_mlp: take the residual stream behind block 0 for the embedding; see
            `effective_embedding`.

    Raises:
        ModelError: its norms do not fold, or it embeds and unembeds other vocabularies.
    """
    check_foldable(model)
    unembedding = folded_unembedding(model)
    embedding = effective_embedding(model) if after_mlp else plain(model.bridge.W_E)
    if len(embedding) != unembedding.shape[1]:
        raise ModelError(
            f"{model.name}: it embeds {len(embedding)} tokens and unembeds "
            f"{unembedding.shape[1]}; copying needs the same ones"
        )
    total = torch.zeros(unembedding.shape[0], embedding.shape[1], dtype=torch.float64)
    for start in range(0, len(embedding), CHUNK):
        some = slice(start, start + CHUNK)
        total += unembedding[:, some].double() @ embedding[some].double()
    return total


@torch.inference_mode()
def effective_embedding(
    model: Model, tokens: Int[Tensor, " token"] | None = None
) -> Float[Tensor, "token d_model"]:
    """The residual stream behind block 0, normalised: what later layers read of a token alone.

    Attention's output and learned positions are set to 0, so that only W_E and the first MLP's
    answer to it remain. Wang et al. 2022 (section 3.1) take the state after the first MLP for the
    token when they measure copying, because in GPT-2 that MLP turns the embedding, tied to the
    unembedding, into another code. Each row is divided by its root mean square, as the next
    norm does; the norm's gain is in the head's own matrices.

    Args:
        model: a loaded model.
        tokens: those that are asked for; all of the vocabulary when None.
    """
    bridge = model.bridge
    token_ids = torch.arange(model.vocabulary_size) if tokens is None else tokens
    blocks: list[Tensor] = []

    def erase(activation: Tensor, hook: Any) -> Tensor:
        return torch.zeros_like(activation)

    def take(residual: Tensor, hook: Any) -> None:
        blocks.append(plain(residual[:, 0]))
        raise StopAtLayerException(residual)

    hooks = [("blocks.0.attn.hook_out", erase), ("blocks.0.hook_out", take)]
    if "pos_embed" in bridge._modules:
        hooks.insert(0, ("pos_embed.hook_out", erase))
    for start in range(0, len(token_ids), CHUNK):
        some = token_ids[start : start + CHUNK]
        bridge.run_with_hooks(
            some[:, None].to(model.device), fwd_hooks=hooks, return_type=None, use_cache=False
        )
    rows = torch.cat(blocks)
    if reads_centred(model):
        rows = centre(rows, -1)
    # a row of zeros (padding of the vocabulary) stays one
    return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)


def folded_unembedding(model: Model) -> Float[Tensor, "d_model token"]:
    """W_U with the last norm's gain in it, centred over tokens, and over d_model as it reads."""
    scale = gain(model, model.bridge.ln_final)
    weight = plain(model.bridge.W_U)
    weight = weight * (scale[:, None] if isinstance(scale, Tensor) else scale)
    if writes_centred(model):
        weight = centre(weight, 0)
    return centre(weight, 1)
