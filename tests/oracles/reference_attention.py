"""Queries, keys and values of transformers' layers, for the reference attention of the package.

It covers multi-head (GPT-2, GPT-NeoX), grouped-query and multi-query attention (Llama): causal,
without dropout and cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headscope.models.reference_attention import (
    AttentionResult,
    attention_pattern,
    merge_heads,
    mix_values,
    split_heads,
)

_Stream = Float[Tensor, "batch position d_model"]
_Heads = Float[Tensor, "batch head position d_head"]


@dataclass
class Projected:
    """What a layer's matrices and biases make of its input."""

    query: _Heads
    key: _Heads
    value: _Heads
    output: nn.Module
    """The output projection."""


def layer_attention(layer: nn.Module, config: Any, x: _Stream) -> AttentionResult:
    """Output and pattern of a layer by the reference.

    Args:
        layer: a `GPT2Attention`, `GPTNeoXAttention` or `LlamaAttention`.
        config: the configuration of its model.
        x: the input of the layer, after its norm.
    """
    projected = _PROJECTIONS[type(layer).__name__](layer, config, x)
    scale = getattr(layer, "scaling", None)
    pattern = attention_pattern(projected.query, projected.key, scale=scale)
    z = mix_values(pattern, projected.value)
    return AttentionResult(output=projected.output(merge_heads(z)), pattern=pattern)


def rotate(x: _Heads, base: float, d_rotary: int) -> _Heads:
    """Rotary positions: feature i of both halves turns by position · base^(−2i/d).

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


def _gpt2(layer: Any, config: Any, x: _Stream) -> Projected:
    """Queries, keys and values side by side."""
    d_head = config.hidden_size // config.num_attention_heads
    q, k, v = (split_heads(part, d_head) for part in layer.c_attn(x).chunk(3, dim=-1))
    return Projected(q, k, v, layer.c_proj)


def _gpt_neox(layer: Any, config: Any, x: _Stream) -> Projected:
    """Query, key and value of head 0, then of head 1; rotary positions on a part of each head."""
    heads = config.num_attention_heads
    q, k, v = rearrange(layer.query_key_value(x), "b p (h part d) -> part b h p d", part=3, h=heads)
    rotary = (config.rope_parameters["rope_theta"], layer.rotary_ndims)
    return Projected(rotate(q, *rotary), rotate(k, *rotary), v, layer.dense)


def _llama(layer: Any, config: Any, x: _Stream) -> Projected:
    """Keys and values of fewer heads, each shared by a group of query heads."""
    q, k, v = (
        split_heads(projection(x), config.head_dim)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    rotary = (config.rope_parameters["rope_theta"], config.head_dim)
    return Projected(rotate(q, *rotary), rotate(k, *rotary), v, layer.o_proj)


_PROJECTIONS: dict[str, Callable[[Any, Any, _Stream], Projected]] = {
    "GPT2Attention": _gpt2,
    "GPTNeoXAttention": _gpt_neox,
    "LlamaAttention": _llama,
}
