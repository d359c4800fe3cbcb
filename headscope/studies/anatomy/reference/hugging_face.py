"""Our modules with the weights of a pretrained layer, so that each can be checked against it.

A layout is a function and a row in each of the two tables, by the name of Hugging Face's class.
Names have to be exact: a class that inherits from one of these may compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from headscope.errors import ModelError, ShapeError
from headscope.studies.anatomy.reference.feed_forward import FeedForward, SwiGLU
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention
from headscope.studies.anatomy.reference.positions import Rotary

_Module = TypeVar("_Module", bound=nn.Module)
_Map = tuple[Float[Tensor, "out in"], Float[Tensor, " out"] | None]
"""Weight and bias of a linear map, as nn.Linear holds them."""
_ATTENTION, _FEED_FORWARD, _GATED = (
    ("W_Q", "W_K", "W_V", "W_O"),
    ("W_in", "W_out"),
    ("W_gate", "W_in", "W_out"),
)


def attention_like(hf_attention: nn.Module, config: Any) -> MultiHeadAttention:
    """Multi-head attention with a copy of a Hugging Face layer's weights.

    Args:
        hf_attention: the layer, e.g. `model.transformer.h[0].attn`.
        config: the model's configuration.

    Returns:
        Attention that gives the layer's output and pattern up to rounding. It takes what the
        layer takes, which is the residual stream after its layer norm. Dropout is left out.

    Raises:
        ModelError: the layer's class is not in `ATTENTIONS`, or its rotary positions are of
            another kind than the plain one.
        ShapeError: the configuration is not that of the layer.
    """
    name = type(hf_attention).__name__
    if name not in ATTENTIONS:
        raise _unknown("attention", name, ATTENTIONS)
    return ATTENTIONS[name](hf_attention, config)


def feed_forward_like(hf_mlp: nn.Module, config: Any) -> FeedForward | SwiGLU:
    """A feed-forward block with a copy of a Hugging Face block's weights.

    Args:
        hf_mlp: the block, e.g. `model.transformer.h[0].mlp`.
        config: the model's configuration.

    Returns:
        A block that gives the same output up to rounding. Dropout is left out.

    Raises:
        ModelError: the block's class is not in `FEED_FORWARDS`, or it is gated by another
            activation than silu.
        ChoiceError: its activation is not in `ACTIVATIONS` of `reference.feed_forward`.
        ShapeError: the configuration is not that of the block.
    """
    name = type(hf_mlp).__name__
    if name not in FEED_FORWARDS:
        raise _unknown("feed-forward", name, FEED_FORWARDS)
    return FEED_FORWARDS[name](hf_mlp, config)


def _gpt2_attention(hf: Any, config: Any) -> MultiHeadAttention:
    """Queries, keys and values side by side; in cross-attention queries have their own map.

    Positions are learned and added to the embedding, before any layer.
    """
    crossed = hf.is_cross_attention
    attention = MultiHeadAttention(
        config.hidden_size, config.num_attention_heads, causal=not crossed
    )
    # the configuration can leave 1/√d_head out, or divide by the number of the layer as well
    attention.scale = hf.scaling
    fused = _unpack(hf.q_attn, 1) + _unpack(hf.c_attn, 2) if crossed else _unpack(hf.c_attn, 3)
    return _fill(attention, _ATTENTION, [*fused, *_unpack(hf.c_proj, 1)])


def _gpt2_feed_forward(hf: Any, config: Any) -> FeedForward:
    """Two maps, with the GELU that a tanh approximates unless the configuration says other."""
    width = config.n_inner if config.n_inner is not None else 4 * config.hidden_size
    block = FeedForward(config.hidden_size, width, activation=config.activation_function)
    return _fill(block, _FEED_FORWARD, _unpack(hf.c_fc, 1) + _unpack(hf.c_proj, 1))


def _gpt_neox_attention(hf: Any, config: Any) -> MultiHeadAttention:
    """One fused projection: head 0's query, key and value rows, then head 1's, not all queries
    first as in GPT-2; rotary positions turn a part of each head.
    """
    heads = config.num_attention_heads
    attention = MultiHeadAttention(
        config.hidden_size,
        heads,
        bias=config.attention_bias,
        causal=True,
        rotary=_plain_rotary(config, hf.rotary_ndims),
    )
    weight, bias = (
        [None] * 3
        if rows is None
        else rearrange(rows, "(head part d_head) ... -> part (head d_head) ...", head=heads, part=3)
        for rows in (hf.query_key_value.weight, hf.query_key_value.bias)
    )
    return _fill(attention, _ATTENTION, [*zip(weight, bias, strict=True), *_maps(hf.dense)])


def _gpt_neox_feed_forward(hf: Any, config: Any) -> FeedForward:
    """Two maps with the exact GELU, unless the configuration says other."""
    width, activation = config.intermediate_size, config.hidden_act
    block = FeedForward(config.hidden_size, width, activation=activation)
    return _fill(block, _FEED_FORWARD, _maps(hf.dense_h_to_4h, hf.dense_4h_to_h))


def _llama_attention(hf: Any, config: Any) -> MultiHeadAttention:
    """Four maps; those of keys and values are narrower when several heads share one of them."""
    attention = MultiHeadAttention(
        config.hidden_size,
        config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        d_head=config.head_dim,
        bias=config.attention_bias,
        causal=True,
        rotary=_plain_rotary(config, config.head_dim),
    )
    return _fill(attention, _ATTENTION, _maps(hf.q_proj, hf.k_proj, hf.v_proj, hf.o_proj))


def _llama_feed_forward(hf: Any, config: Any) -> SwiGLU:
    if config.hidden_act not in ("silu", "swish"):
        raise ModelError(f"SwiGLU is gated by silu, but this block by {config.hidden_act!r}")
    block = SwiGLU(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
    return _fill(block, _GATED, _maps(hf.gate_proj, hf.up_proj, hf.down_proj))


ATTENTIONS: dict[str, Callable[[Any, Any], MultiHeadAttention]] = {
    "GPT2Attention": _gpt2_attention,
    "GPTNeoXAttention": _gpt_neox_attention,
    "LlamaAttention": _llama_attention,
}
FEED_FORWARDS: dict[str, Callable[[Any, Any], FeedForward | SwiGLU]] = {
    "GPT2MLP": _gpt2_feed_forward,
    "GPTNeoXMLP": _gpt_neox_feed_forward,
    "LlamaMLP": _llama_feed_forward,
}


def _unknown(what: str, name: str, known: Iterable[str]) -> ModelError:
    return ModelError(f"{name} is no {what} layer of a known layout; known: {', '.join(known)}")


def _plain_rotary(config: Any, d_rotary: int) -> Rotary:
    """Rotary positions that are not stretched for longer texts than those of the training."""
    parameters = config.rope_parameters
    kind = parameters["rope_type"]
    if kind != "default":
        raise ModelError(f"rotary positions of type {kind!r}; only the plain ones are written out")
    return Rotary(d_rotary, base=parameters["rope_theta"])


def _maps(*linears: nn.Linear) -> list[_Map]:
    return [(linear.weight, linear.bias) for linear in linears]


def _unpack(conv: Any, parts: int) -> list[_Map]:
    """The maps that lie side by side in GPT-2's Conv1D, which holds them transposed: [in out]."""
    weights = rearrange(conv.weight, "d_in (part d_out) -> part d_out d_in", part=parts)
    biases = rearrange(conv.bias, "(part d_out) -> part d_out", part=parts)
    return list(zip(weights, biases, strict=True))


def _fill(module: _Module, names: Iterable[str], maps: Iterable[_Map]) -> _Module:
    """Give a module's linear maps copies of weights and biases, in their type and on their device.

    Raises:
        ShapeError: they are of other sizes than the maps.
    """
    for name, stored in zip(names, maps, strict=True):
        linear: nn.Linear = getattr(module, name)
        shapes = [None if x is None else tuple(x.shape) for x in stored]
        expected = [None if x is None else tuple(x.shape) for x in (linear.weight, linear.bias)]
        if shapes != expected:
            raise ShapeError(
                f"the configuration asks for a weight of {expected[0]} and a bias of "
                f"{expected[1]}, but the layer has {shapes[0]} and {shapes[1]}; "
                "is it another model's configuration?"
            )
        for kind, x in zip(("weight", "bias"), stored, strict=True):
            if x is not None:
                copy = x.detach().clone(memory_format=torch.contiguous_format)
                setattr(linear, kind, nn.Parameter(copy))
    return module
