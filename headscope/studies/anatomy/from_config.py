"""From a configuration of transformers to dimensions. A model type is a row of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headscope.errors import ModelError
from headscope.models.layout import has_stacks, read_layout, text_config
from headscope.studies.anatomy.dimensions import GPT2, LLAMA, NEOX, Dimensions, Layout

# biases as transformers' own modelling code sets them, not only as the papers describe them
LAYOUTS: dict[str, Callable[[Any], Layout]] = {
    "gpt2": lambda config: GPT2,
    "gpt_neox": lambda config: replace(
        NEOX, qkv_bias=config.attention_bias, o_bias=config.attention_bias
    ),
    "llama": lambda config: replace(
        LLAMA,
        qkv_bias=config.attention_bias,
        o_bias=config.attention_bias,
        feed_forward_bias=config.mlp_bias,
    ),
    "mistral": lambda config: LLAMA,
    "qwen2": lambda config: replace(LLAMA, qkv_bias=True),
}
_FOUR_TIMES = ("gpt2", "gpt_bigcode", "gpt_neo", "gptj")
"""Model types whose d_ff is 4 × d_model where the configuration leaves it empty."""


def dimensions_of(name: str, config: Any) -> Dimensions:
    """The dimensions that a configuration states.

    Args:
        name: of the model, for messages.
        config: a configuration of transformers.

    Raises:
        ModelError: no attention heads, numbers that no model can have, or attention without
            W_K and W_V of its own.
    """
    if has_stacks(config):
        raise ModelError(
            f"{name}: a {config.model_type} has an encoder and a decoder; anatomy counts models "
            "with one stack of layers"
        )
    config = text_config(name, config)
    if getattr(config, "kv_lora_rank", None):
        raise ModelError(
            f"{name}: a {config.model_type} compresses keys and values (kv_lora_rank "
            f"{config.kv_lora_rank}), so that it has no W_K and W_V to count; anatomy reads "
            "attention with W_Q, W_K, W_V and W_O"
        )
    stated = read_layout(name, config)
    layout = LAYOUTS.get(config.model_type)
    return Dimensions(
        layers=stated.layers,
        heads=stated.heads,
        key_value_heads=stated.key_value_heads,
        d_model=stated.d_model,
        d_head=stated.d_head,
        d_ff=_d_ff(config, stated.d_model),
        vocabulary=stated.vocabulary,
        context=stated.context,
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        layout=layout(config) if layout else None,
    )


def _d_ff(config: Any, d_model: int) -> int | None:
    for key in ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"):
        if getattr(config, key, None):
            return int(getattr(config, key))
    return 4 * d_model if config.model_type in _FOUR_TIMES else None
