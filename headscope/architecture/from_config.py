"""From a configuration of transformers to dimensions. A model type is a row of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headscope.architecture.dimensions import GPT2, LLAMA, NEOX, Dimensions, Layout
from headscope.errors import ModelError

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
    if getattr(config, "kv_lora_rank", None):
        raise ModelError(
            f"{name}: a {config.model_type} compresses keys and values (kv_lora_rank "
            f"{config.kv_lora_rank}), so that it has no W_K and W_V to count; anatomy reads "
            "attention with W_Q, W_K, W_V and W_O"
        )
    heads = _number(name, config, "num_attention_heads")
    d_model = _number(name, config, "hidden_size")
    layout = LAYOUTS.get(config.model_type)
    return Dimensions(
        layers=_number(name, config, "num_hidden_layers"),
        heads=heads,
        key_value_heads=_key_value_heads(config, heads),
        d_model=d_model,
        d_head=getattr(config, "head_dim", None) or d_model // heads,
        d_ff=_d_ff(config, d_model),
        vocabulary=_number(name, config, "vocab_size"),
        context=getattr(config, "max_position_embeddings", None),
        tied=bool(getattr(config, "tie_word_embeddings", False)),
        layout=layout(config) if layout else None,
    )


def _number(name: str, config: Any, key: str) -> int:
    value = getattr(config, key, None)
    if not isinstance(value, int) or value < 1:
        came = "none" if value is None else repr(value)
        raise ModelError(
            f"{name}: its configuration ({config.model_type}) should give {key} as a number of at "
            f"least 1, but gives {came}; anatomy reads transformers with attention heads"
        )
    return value


def _key_value_heads(config: Any, heads: int) -> int:
    if getattr(config, "multi_query", False) and not getattr(
        config, "new_decoder_architecture", False
    ):
        return 1  # Falcon 7B and StarCoder
    for key in ("num_key_value_heads", "num_kv_heads"):
        if getattr(config, key, None):
            return int(getattr(config, key))
    return heads


def _d_ff(config: Any, d_model: int) -> int | None:
    for key in ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"):
        if getattr(config, key, None):
            return int(getattr(config, key))
    return 4 * d_model if config.model_type in _FOUR_TIMES else None
