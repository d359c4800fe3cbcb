"""What each head alone adds to the residual stream: a layer's output is a sum over its heads."""

from __future__ import annotations

from einops import einsum, rearrange
from jaxtyping import Float, Shaped
from torch import Tensor

from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention


def heads_output(
    attention: MultiHeadAttention,
    query: Float[Tensor, "*_batch _query _d_model"],
    key: Float[Tensor, "*_batch _key _d_model"],
    value: Float[Tensor, "*_batch _key _d_model"],
    *,
    mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
) -> Float[Tensor, "batch head query d_model"]:
    """z_h W_O^h of every head, in the units of the residual stream.

        output = Σ_h z_h W_O^h + b_O

    Concatenating heads and multiplying by W_O is the same as giving each head its own rows of
    W_O and adding up. b_O belongs to no head and is left out.

    Args:
        attention: the layer.
        query: as the layer takes it, like `key`, `value` and `mask`.
        key: see query.
        value: see query.
        mask: see query.

    Raises:
        ShapeError: the inputs do not fit each other, the mask or the layer.

    Source: Elhage et al. 2021, “A Mathematical Framework for Transformer Circuits”, “Attention
    Heads are Independent and Additive”.
    """
    z, _ = attention.mix(query, key, value, mask=mask)
    # nn.Linear holds the transpose of W_O
    w_o = rearrange(
        attention.W_O.weight,
        "d_model (head d_head) -> head d_head d_model",
        head=attention.n_heads,
    )
    return einsum(
        z, w_o, "batch head query d_head, head d_head d_model -> batch head query d_model"
    )
