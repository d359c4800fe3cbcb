"""The same attention from torch's fused kernel, which never holds a pattern in memory."""

from __future__ import annotations

from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headscope.studies.anatomy.reference.masks import allowed
from headscope.studies.anatomy.reference.scaled_dot_product import Attended
from headscope.studies.anatomy.reference.shapes import check_sequences


def attend_fast(
    query: Float[Tensor, "*_batch _query _d_head"],
    key: Float[Tensor, "*_batch _key _d_head"],
    value: Float[Tensor, "*_batch _key _d_value"],
    *,
    mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Attended:
    """What `attend` returns without a pattern, up to rounding; for the arguments see there.

    Memory grows with the length and not with its square where torch has a kernel for it.

    Raises:
        ShapeError: queries, keys, values and mask do not fit together.

    Source: Dao et al. 2022, “FlashAttention”; torch.nn.functional.scaled_dot_product_attention.
    """
    check_sequences(query, key, value)
    scores = (*query.shape[:-1], key.shape[-2])
    visible = allowed(mask, scores, causal=causal, device=query.device)
    if mask is None:
        # the kernel leaves out the upper triangle by itself, faster than by a mask
        output = scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    else:
        output = scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scale)
    return Attended(output, None)
