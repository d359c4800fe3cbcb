"""The numbers that fix a transformer's size, and the layouts that say what else it is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Layout:
    """Which tensors a layer holds beside the attention weights, which all layouts share."""

    qkv_bias: bool
    o_bias: bool
    feed_forward_bias: bool
    feed_forward_matrices: int
    """2: up and down; 3: gate, up and down (SwiGLU)."""
    norm_vectors: int
    """Vectors of d_model in a layer's norms: 2 for a LayerNorm (scale and shift), 1 for RMSNorm."""
    final_norm_vectors: int
    learned_positions: bool


GPT2 = Layout(
    qkv_bias=True,
    o_bias=True,
    feed_forward_bias=True,
    feed_forward_matrices=2,
    norm_vectors=4,
    final_norm_vectors=2,
    learned_positions=True,
)
NEOX = replace(GPT2, learned_positions=False)
LLAMA = Layout(
    qkv_bias=False,
    o_bias=False,
    feed_forward_bias=False,
    feed_forward_matrices=3,
    norm_vectors=2,
    final_norm_vectors=1,
    learned_positions=False,
)


@dataclass(frozen=True)
class Dimensions:
    """The size of a transformer. All are counts."""

    layers: int
    heads: int
    key_value_heads: int
    """As many as heads, fewer where heads share them in groups, or 1."""
    d_model: int
    d_head: int
    d_ff: int | None
    """Width of the feed-forward block; None where the configuration does not say."""
    vocabulary: int
    context: int | None
    """Longest input in tokens; None where the configuration sets no limit."""
    tied: bool
    """The unembedding is the embedding's own tensor."""
    layout: Layout | None
    """None for a model type that is not in the table: biases and norms have no formula then."""
