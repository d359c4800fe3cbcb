"""Attention written out from transformers' weights, to compare with the patterns of a model.

`reference_attention` covers multi-head (GPT-2, GPT-NeoX), grouped-query and multi-query
attention (Llama), causal, without dropout and cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

_Stream = Float[Tensor, "batch position d_model"]
_Heads = Float[Tensor, "batch head position d_head"]


class Attended(NamedTuple):
    """Output and pattern of attention."""

    output: Float[Tensor, "*batch query d_value"]
    pattern: Float[Tensor, "*batch query key"]


class Projected(NamedTuple):
    """Queries, keys and values of one layer, and its output projection."""

    q: _Heads
    k: Float[Tensor, "batch key_value_head position d_head"]
    v: Float[Tensor, "batch key_value_head position d_head"]
    w_o: Float[Tensor, "d_model heads_times_d_head"]
    b_o: Float[Tensor, " d_model"] | None


def attend(
    q: Float[Tensor, "*batch position d_head"],
    k: Float[Tensor, "*batch position d_head"],
    v: Float[Tensor, "*batch position d_value"],
    scale: float | None = None,
) -> Attended:
    """Causal attention: pattern = softmax(scale · q kᵀ), output = pattern v.

    Args:
        q: queries.
        k: keys.
        v: values.
        scale: factor of the scores; 1/√d_head if None.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    >>> value = torch.tensor([[0.0], [1.0]])
    >>> attend(torch.ones(2, 4), torch.ones(2, 4), value).pattern.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    scores = einsum(q, k, "... query d_head, ... key d_head -> ... query key")
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(later, -torch.inf).softmax(-1)
    return Attended(
        einsum(pattern, v, "... query key, ... key d_value -> ... query d_value"), pattern
    )


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


def reference_attention(layer: nn.Module, config: Any, x: _Stream) -> Attended:
    """Output and pattern of a layer of transformers, from its weights and its input.

    Args:
        layer: a `GPT2Attention`, `GPTNeoXAttention` or `LlamaAttention`.
        config: the configuration of its model.
        x: the input of the layer, after its norm.

    Returns:
        The addition to the residual stream, and the pattern `[batch head query key]`.
    """
    parts = _PROJECTIONS[type(layer).__name__](layer, config, x)
    groups = parts.q.shape[1] // parts.k.shape[1]
    k, v = (repeat(part, "b h p d -> b (h group) p d", group=groups) for part in (parts.k, parts.v))
    z, pattern = attend(parts.q, k, v, getattr(layer, "scaling", None))
    output = nn.functional.linear(rearrange(z, "b h p d -> b p (h d)"), parts.w_o, parts.b_o)
    return Attended(output, pattern)


def _gpt2(layer: Any, config: Any, x: _Stream) -> Projected:
    """Queries, keys and values side by side, in matrices `[in out]`."""
    qkv = x @ layer.c_attn.weight + layer.c_attn.bias
    q, k, v = rearrange(qkv, "b p (part h d) -> part b h p d", part=3, h=config.num_attention_heads)
    return Projected(q, k, v, layer.c_proj.weight.T, layer.c_proj.bias)


def _gpt_neox(layer: Any, config: Any, x: _Stream) -> Projected:
    """Query, key and value of head 0, then of head 1; rotary positions on a part of each head."""
    heads = config.num_attention_heads
    q, k, v = rearrange(layer.query_key_value(x), "b p (h part d) -> part b h p d", part=3, h=heads)
    rotary = (config.rope_parameters["rope_theta"], layer.rotary_ndims)
    dense = layer.dense
    return Projected(rotate(q, *rotary), rotate(k, *rotary), v, dense.weight, dense.bias)


def _llama(layer: Any, config: Any, x: _Stream) -> Projected:
    """Keys and values of fewer heads, each shared by a group of query heads."""
    q, k, v = (
        rearrange(projection(x), "b p (h d) -> b h p d", d=config.head_dim)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    rotary = (config.rope_parameters["rope_theta"], config.head_dim)
    o = layer.o_proj
    return Projected(rotate(q, *rotary), rotate(k, *rotary), v, o.weight, o.bias)


_PROJECTIONS: dict[str, Callable[[Any, Any, _Stream], Projected]] = {
    "GPT2Attention": _gpt2,
    "GPTNeoXAttention": _gpt_neox,
    "LlamaAttention": _llama,
}
