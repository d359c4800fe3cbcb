"""GPT-2's layout: fused projections in a Conv1D, which holds the transpose of a linear map.

Positions are learned and added to the embedding, before any layer.
"""

from __future__ import annotations

from typing import Any

from headscope.studies.anatomy.reference.feed_forward import FeedForward
from headscope.studies.anatomy.reference.hugging_face.weights import fill, unpack
from headscope.studies.anatomy.reference.multi_head import MultiHeadAttention


def attention(hf: Any, config: Any) -> MultiHeadAttention:
    """Queries, keys and values side by side; in cross-attention queries have their own map."""
    crossed = hf.is_cross_attention
    ours = MultiHeadAttention(config.hidden_size, config.num_attention_heads, causal=not crossed)
    # the configuration can leave 1/√d_head out, or divide by the number of the layer as well
    ours.scale = hf.scaling
    maps = unpack(hf.q_attn, 1) + unpack(hf.c_attn, 2) if crossed else unpack(hf.c_attn, 3)
    maps += unpack(hf.c_proj, 1)
    for projection, weights in zip((ours.W_Q, ours.W_K, ours.W_V, ours.W_O), maps, strict=True):
        fill(projection, *weights)
    return ours


def feed_forward(hf: Any, config: Any) -> FeedForward:
    """Two maps, with the GELU that a tanh approximates unless the configuration says other."""
    width = config.n_inner if config.n_inner is not None else 4 * config.hidden_size
    ours = FeedForward(config.hidden_size, width, activation=config.activation_function)
    fill(ours.W_in, *unpack(hf.c_fc, 1)[0])
    fill(ours.W_out, *unpack(hf.c_proj, 1)[0])
    return ours
