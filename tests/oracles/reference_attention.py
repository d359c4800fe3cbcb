"""Attention written out from transformers' weights, to compare with the patterns of a model.

It covers multi-head (GPT-2, GPT-NeoX), grouped-query and multi-query attention (Llama): causal, without
dropout and cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

_Stream = Float[Tensor, "batch position d_model"]
_Heads = Float[Tensor, "batch head position d_head"]
_Projected = tuple[_Heads, _Heads, _Heads, nn.Module]
"""Queries, keys, values, and the output projection."""


def reference_attention(
    layer: nn.Module, config: Any, x: _Stream
) -> tuple[_Stream, Float[Tensor, "batch head query key"]]:
    """Output and pattern of a layer: pattern = softmax(scale · q kᵀ), output = W_O pattern v.

    Args:
        layer: a `GPT2Attention`, `GPTNeoXAttention` or `LlamaAttention`.
        config: the configuration of its model.
        x: the input of the layer, after its norm.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.
    """
    q, k, v, output = _PROJECTIONS[type(layer).__name__](layer, config, x)
    k, v = (repeat(t, "b h p d -> b (h g) p d", g=q.shape[1] // t.shape[1]) for t in (k, v))
    scale = getattr(layer, "scaling", q.shape[-1] ** -0.5)
    scores = scale * einsum(q, k, "... query d, ... key d -> ... query key")
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(later, -torch.inf).softmax(-1)
    z = einsum(pattern, v, "... query key, ... key d -> ... query d")
    return output(rearrange(z, "b h p d -> b p (h d)")), pattern


def rotate(x: _Heads, base: float, d_rotary: int) -> _Heads:
    """Rotary positions: feature i of the first half and of the second turn by position · base^(−2i/d).

    Args:
        x: queries or keys.
        base: base of the angles.
        d_rotary: number of features that turn; the rest stay.

    Source: Su et al. 2021, equation 34, with halves for pairs as in transformers.
    """
    frequency = base ** (-torch.arange(0, d_rotary, 2, dtype=torch.float32) / d_rotary)
    angle = torch.arange(x.shape[-2], dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second, rest = x.split([d_rotary // 2, d_rotary // 2, x.shape[-1] - d_rotary], dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def _gpt2(layer: Any, config: Any, x: _Stream) -> _Projected:
    """Queries, keys and values side by side."""
    heads = config.num_attention_heads
    q, k, v = rearrange(layer.c_attn(x), "b p (part h d) -> part b h p d", part=3, h=heads)
    return q, k, v, layer.c_proj


def _gpt_neox(layer: Any, config: Any, x: _Stream) -> _Projected:
    """Query, key and value of head 0, then of head 1; rotary positions on a part of each head."""
    heads = config.num_attention_heads
    q, k, v = rearrange(layer.query_key_value(x), "b p (h part d) -> part b h p d", part=3, h=heads)
    rotary = (config.rope_parameters["rope_theta"], layer.rotary_ndims)
    return rotate(q, *rotary), rotate(k, *rotary), v, layer.dense


def _llama(layer: Any, config: Any, x: _Stream) -> _Projected:
    """Keys and values of fewer heads, each shared by a group of query heads."""
    q, k, v = (
        rearrange(projection(x), "b p (h d) -> b h p d", d=config.head_dim)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    rotary = (config.rope_parameters["rope_theta"], config.head_dim)
    return rotate(q, *rotary), rotate(k, *rotary), v, layer.o_proj


_PROJECTIONS: dict[str, Callable[[Any, Any, _Stream], _Projected]] = {
    "GPT2Attention": _gpt2,
    "GPTNeoXAttention": _gpt_neox,
    "LlamaAttention": _llama,
}
