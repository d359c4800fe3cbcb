"""The numbers that fix a transformer's size, from a configuration, and what its cache takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.errors import ModelError
from headscope.models.layout.dimensions import (
    bytes_per_key,
    read_dimensions,
    text_config,
)
from headscope.models.layout.model_layout import LayerTensors
from headscope.models.layout.table import find_layout

_FOUR_TIMES = ("gpt2", "gpt_bigcode", "gpt_neo", "gptj")
"""Model types whose d_ff is 4 × d_model where the configuration leaves it empty."""


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
    tensors: LayerTensors | None
    """None for a layout whose row does not say: biases and norms have no formula then."""


def dimensions_of(name: str, config: Any) -> Dimensions:
    """The dimensions that a configuration states.

    Args:
        name: of the model, for messages.
        config: a configuration of transformers.

    Raises:
        ModelError: no attention heads, numbers that no model can have, or attention without
            W_K and W_V of its own.
    """
    config = text_config(name, config)
    if getattr(config, "kv_lora_rank", None):
        raise ModelError(
            f"{name}: a {config.model_type} compresses keys and values (kv_lora_rank "
            f"{config.kv_lora_rank}), so that it has no W_K and W_V to count; anatomy reads "
            "attention with W_Q, W_K, W_V and W_O"
        )
    attention = read_dimensions(name, config)
    layout = find_layout(config.model_type)
    return Dimensions(
        layers=attention.layers,
        heads=attention.heads,
        key_value_heads=attention.key_value_heads,
        d_model=attention.d_model,
        d_head=attention.d_head,
        d_ff=_d_ff(config, attention.d_model),
        vocabulary=attention.vocabulary,
        context=attention.context,
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        tensors=layout.tensors(config) if layout and layout.tensors else None,
    )


@dataclass(frozen=True)
class CacheSize:
    """The bytes of keys and values of past tokens, for a number of key/value heads."""

    variant: str
    """`full`: as many key/value heads as heads; `own`: the model's own number; `single`: one."""
    key_value_heads: int
    bytes_per_token: int
    bytes: int


def cache_sizes(
    dimensions: Dimensions, *, context: int, batch: int, dtype: str
) -> tuple[CacheSize, ...]:
    """The cache with as many key/value heads as heads, with the model's own, and with one.

    bytes = 2 (keys and values) × layers × key/value heads × d_head × context × batch × bytes of
    the dtype (Shazeer 2019, section 3, for one head; Ainslie et al. 2023, section 2.2, for groups).

    Args:
        dimensions: of the model.
        context: tokens kept per sequence.
        batch: sequences.
        dtype: `float16`, `bfloat16` or `float32`.

    Raises:
        ChoiceError: no such dtype.

    >>> from headscope.studies.anatomy.published import SHAPES
    >>> (gpt2,) = (shape for shape in SHAPES if shape.key == "gpt-2-s")
    >>> cache_sizes(gpt2.dimensions, context=1, batch=1, dtype="float16")[0].bytes
    36864
    """
    of_a_head = bytes_per_key(dimensions.d_head, dtype)
    variants = {"full": dimensions.heads, "own": dimensions.key_value_heads, "single": 1}
    rows = []
    for variant, heads in variants.items():
        per_token = dimensions.layers * heads * of_a_head
        rows.append(CacheSize(variant, heads, per_token, per_token * context * batch))
    return tuple(rows)


def _d_ff(config: Any, d_model: int) -> int | None:
    for key in ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"):
        if getattr(config, key, None):
            return int(getattr(config, key))
    return 4 * d_model if config.model_type in _FOUR_TIMES else None
