"""Llama's layout: separate projections, grouped key/value heads, full rotary positions, SwiGLU."""

from __future__ import annotations

from typing import Any

from headscope.errors import ModelError
from headscope.studies.anatomy.reference.hugging_face.weights import fill, plain_rotary
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention
from headscope.studies.anatomy.reference.swiglu import SwiGLU


def attention(hf: Any, config: Any) -> MultiHeadAttention:
    """Four maps; those of keys and values are narrower when several heads share one of them."""
    ours = MultiHeadAttention(
        config.hidden_size,
        config.num_attention_heads,
        n_kv_heads=config.num_key_value_heads,
        d_head=config.head_dim,
        bias=config.attention_bias,
        causal=True,
        rotary=plain_rotary(config, config.head_dim),
    )
    fill(ours.W_Q, hf.q_proj.weight, hf.q_proj.bias)
    fill(ours.W_K, hf.k_proj.weight, hf.k_proj.bias)
    fill(ours.W_V, hf.v_proj.weight, hf.v_proj.bias)
    fill(ours.W_O, hf.o_proj.weight, hf.o_proj.bias)
    return ours


def feed_forward(hf: Any, config: Any) -> SwiGLU:
    """Three maps.

    Raises:
        ModelError: the gate's activation is not silu.
    """
    if config.hidden_act not in ("silu", "swish"):
        raise ModelError(f"SwiGLU is gated by silu, but this block by {config.hidden_act!r}")
    ours = SwiGLU(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
    fill(ours.W_gate, hf.gate_proj.weight, hf.gate_proj.bias)
    fill(ours.W_in, hf.up_proj.weight, hf.up_proj.bias)
    fill(ours.W_out, hf.down_proj.weight, hf.down_proj.bias)
    return ours
