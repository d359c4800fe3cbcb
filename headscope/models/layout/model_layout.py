"""A layout of transformers as a row of `table.LAYOUTS`, and forms of Q, K and V matrices.

And the tensors of a layer but its attention matrices.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headscope.attention_kind import CAUSAL, AttentionKind

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


class Split(Enum):
    """Order of the rows of W_Q, W_K and W_V; `projections.py` has a function for each."""

    SEPARATE = "a matrix for queries, one for keys, one for values"
    BLOCKS = "one matrix: all queries, then all keys, then all values"
    BY_KEY_HEAD = "one matrix: for each key head its queries, its key, its value"
    C_ATTN = "one matrix: GPT-2's blocks, transposed; StarCoder's blocks, or by key head"
    CODEGEN = "one matrix of four parts: each with queries, values, keys"
    FACTORS = "factors of latent attention, each a matrix of its own (DeepSeek-V2, 2.1)"


@dataclass(frozen=True)
class Projections:
    """Modules of a layer's attention that hold W_Q, W_K and W_V."""

    modules: tuple[str, ...]
    """Attributes of the attention, for Q, K and V or for the one that holds all three; of `FACTORS`
    those that a layer may have, the last one always."""
    split: Split = Split.SEPARATE
    attention_class: str = ""
    """Class of the attention; empty where the names of the modules say enough."""


Q_PROJ = Projections(("q_proj", "k_proj", "v_proj"))
BERT = Projections(("self.query", "self.key", "self.value"))
DISTILBERT = Projections(("q_lin", "k_lin", "v_lin"))
C_ATTN = Projections(("c_attn",), Split.C_ATTN)
QUERY_KEY_VALUE = Projections(("query_key_value",), Split.BY_KEY_HEAD)
WQKV = Projections(("Wqkv",), Split.BLOCKS)
QKV_PROJ = Projections(("qkv_proj",), Split.BLOCKS)
CODEGEN = Projections(("qkv_proj",), Split.CODEGEN, attention_class="CodeGenAttention")
LATENT = Projections(
    ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"), Split.FACTORS
)


@dataclass(frozen=True)
class ModelLayout:
    """A layout of transformers. On a tiny model with random weights each attention probability
    differs from transformers' own eager attention by less than 1e-5.
    """

    model_type: str
    """The `model_type` of `config.json`."""
    examples: str = ""
    """Models of this layout by the names that people know."""
    attention: str = ""
    """Differences of its attention from softmax(q·k) over all earlier tokens with rotary
    positions."""
    projections: Projections | None = Q_PROJ
    """W_Q, W_K and W_V; None where there are none for all tokens."""
    output: str = "o_proj"
    """Module of W_O within the attention; BERT's within the parent of its attention."""
    own_code: str = ""
    """Class and method that compute attention where transformers' attention interface is not
    called; `engines/adapters.py` has a replacement for each."""
    unnumbered: str = ""
    """Class of the attention where it is not told the number of its layer."""
    attention_kind: AttentionKind = CAUSAL
    positions_after_padding: bool = False
    """Positions are counted from the one after the padding token's number."""
    tensors: Callable[[Any], LayerTensors] | None = None
    """A layer's biases and norms by a configuration, where they are known."""
    engine: str = "fused"
    """The engine that `auto` takes."""
    twin: bool = True
    """The matrices can be shuffled for the twin (the null model), and put back."""
    planted: str = ""
    """Tag of a head that was built by hand in a model of this layout and is found again, or of
    how many such heads each is found."""
