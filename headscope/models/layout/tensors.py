"""Tensors of a layer but its attention matrices, and stored tensors that are no parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

BUFFER = re.compile(
    r"(?:.*\.)?(?:attn|attention|self_attn|self_attention)(?:\.attention|\.self)?"
    r"\.(?:masked_)?bias"
    r"|.*inv_freq|(?:.*\.)?position_ids|rope_(?:freqs|factors_\w+)(?:\.weight)?"
)
"""Causal masks, positions and rotary frequencies, which old files store beside the parameters."""


@dataclass(frozen=True)
class LayerTensors:
    """Biases, norms and feed-forward matrices of a layer, and learned positions of the model.

    Biases are as transformers' own modelling code sets them, not only as the papers describe them.
    """

    qkv_bias: bool
    o_bias: bool
    feed_forward_bias: bool
    feed_forward_matrices: int
    """2: up and down; 3: gate, up and down (SwiGLU)."""
    norm_vectors: int
    """Vectors of d_model in a layer's norms: 2 for a LayerNorm (scale and shift), 1 for RMSNorm."""
    final_norm_vectors: int
    learned_positions: bool


GPT2 = LayerTensors(
    qkv_bias=True,
    o_bias=True,
    feed_forward_bias=True,
    feed_forward_matrices=2,
    norm_vectors=4,
    final_norm_vectors=2,
    learned_positions=True,
)
LLAMA = LayerTensors(
    qkv_bias=False,
    o_bias=False,
    feed_forward_bias=False,
    feed_forward_matrices=3,
    norm_vectors=2,
    final_norm_vectors=1,
    learned_positions=False,
)


def gpt2_tensors(_: Any) -> LayerTensors:
    """GPT-2's, whatever the configuration says."""
    return GPT2


def gpt_neox_tensors(config: Any) -> LayerTensors:
    """GPT-NeoX's: rotary positions, and biases of attention by the configuration."""
    bias = config.attention_bias
    return replace(GPT2, learned_positions=False, qkv_bias=bias, o_bias=bias)


def llama_tensors(config: Any) -> LayerTensors:
    """Llama's, with the biases that the configuration says."""
    return replace(
        LLAMA,
        qkv_bias=config.attention_bias,
        o_bias=config.attention_bias,
        feed_forward_bias=config.mlp_bias,
    )


def mistral_tensors(_: Any) -> LayerTensors:
    """Mistral's: Llama's without biases."""
    return LLAMA


def qwen2_tensors(_: Any) -> LayerTensors:
    """Qwen 2's: Llama's with biases of queries, keys and values."""
    return replace(LLAMA, qkv_bias=True)
