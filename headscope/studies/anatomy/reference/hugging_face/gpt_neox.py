"""GPT-NeoX's layout: one fused projection, head by head, and rotary positions on a part of each."""

from __future__ import annotations

from typing import Any

from einops import rearrange

from headscope.studies.anatomy.reference.feed_forward import FeedForward
from headscope.studies.anatomy.reference.hugging_face.weights import fill, plain_rotary
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention


def attention(hf: Any, config: Any) -> MultiHeadAttention:
    """Head 0's query, key and value rows, then head 1's: not all queries first, as in GPT-2."""
    heads = config.num_attention_heads
    rotary = plain_rotary(config, hf.rotary_ndims)
    biased = config.attention_bias
    ours = MultiHeadAttention(config.hidden_size, heads, bias=biased, causal=True, rotary=rotary)
    fused, by_head = hf.query_key_value, "(head part d_head) ... -> part (head d_head) ..."
    weights = rearrange(fused.weight, by_head, head=heads, part=3)
    biases = (
        [None] * 3 if fused.bias is None else rearrange(fused.bias, by_head, head=heads, part=3)
    )
    for projection, weight, bias in zip(
        (ours.W_Q, ours.W_K, ours.W_V), weights, biases, strict=True
    ):
        fill(projection, weight, bias)
    fill(ours.W_O, hf.dense.weight, hf.dense.bias)
    return ours


def feed_forward(hf: Any, config: Any) -> FeedForward:
    """Two maps with the exact GELU, unless the configuration says other."""
    ours = FeedForward(config.hidden_size, config.intermediate_size, activation=config.hidden_act)
    fill(ours.W_in, hf.dense_h_to_4h.weight, hf.dense_h_to_4h.bias)
    fill(ours.W_out, hf.dense_4h_to_h.weight, hf.dense_4h_to_h.bias)
    return ours
