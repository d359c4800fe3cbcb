"""Numbers of a model's attention, as its configuration states them: the one place that reads them.

transformers keeps those of a model that also sees or hears in a part of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind
from headscope.errors import ModelError, first_line
from headscope.models.layout.table import find_layout

CONTEXT = ("max_position_embeddings", "max_seq_len", "seq_length")


@dataclass(frozen=True)
class AttentionDimensions:
    """The numbers of a model's attention, as its configuration states them."""

    layers: int
    """All of them; see `others`."""
    heads: int
    key_value_heads: int
    """Number in the first layer, as is the width of a head."""
    d_model: int
    d_head: int
    vocabulary: int
    context: int | None
    """Longest input in tokens; None if the configuration states none."""
    attention_kind: AttentionKind = CAUSAL
    others: tuple[int, ...] = ()
    """Numbers of a hybrid's layers without softmax attention; the network says
    which these are, not the configuration."""

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that have softmax attention, by their own numbers in the model, in order.

        >>> from dataclasses import replace
        >>> from transformers import LlamaConfig
        >>> llama = read_dimensions("llama", LlamaConfig(num_hidden_layers=4))
        >>> replace(llama, others=(0, 2)).attention_layers
        (1, 3)
        """
        return tuple(layer for layer in range(self.layers) if layer not in self.others)

    @property
    def forward_options(self) -> dict[str, bool]:
        """Options of a forward pass that computes no cache for a next token."""
        return {"use_cache": False} if self.attention_kind.predicts_next else {}


def read_dimensions(name: str, config: Any) -> AttentionDimensions:
    """The dimensions that a configuration of transformers states for the text that it writes.

    >>> from transformers import GPTBigCodeConfig
    >>> read_dimensions("starcoder", GPTBigCodeConfig(n_head=8)).key_value_heads
    1

    Args:
        name: of the model, for messages.
        config: a configuration of transformers; of a model that also sees or hears, too.

    Raises:
        ModelError: it states no attention heads, not even one, or another number in another layer.
    """
    try:
        text = config.get_text_config(decoder=True)
        heads, d_model = text.num_attention_heads, text.hidden_size
        stated = [getattr(text, key, None) for key in CONTEXT]
        rope = getattr(text, "rope_parameters", None) or {}
        # LongRoPE (Phi-3) takes its rotary frequencies by the longest text of a batch: windows as
        # short as in training have the same ones in every batch
        if rope.get("rope_type") == "longrope":
            stated = [rope["original_max_position_embeddings"]]
        # XLNet states −1
        context: int | None = next((length for length in stated if length and length > 0), None)
        layout = find_layout(text.model_type)
        if context is not None and layout is not None and layout.positions_after_padding:
            context -= (text.pad_token_id or 0) + 1
        # Falcon's code reads one of three fields
        if text.model_type != "falcon":
            key_value_heads = _of_first_layer(text, "num_key_value_heads") or heads
        elif text.new_decoder_architecture:
            key_value_heads = int(text.num_kv_heads)
        else:
            key_value_heads = 1 if text.multi_query else heads
        return AttentionDimensions(
            layers=text.num_hidden_layers,
            heads=heads,
            key_value_heads=key_value_heads,
            d_model=d_model,
            d_head=_of_first_layer(text, "head_dim") or d_model // heads,
            vocabulary=text.vocab_size,
            context=context,
            attention_kind=attention_kind(config),
        )
    # transformers': what is missing, or parts or layers that differ
    except (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            f"{name}: its configuration ({config.model_type}) does not state attention heads that "
            f"headscope reads: {first_line(error):.200}"
        ) from error


def attention_kind(config: Any) -> AttentionKind:
    """The kind of a model's attention by its configuration.

    >>> from transformers import BertConfig
    >>> attention_kind(BertConfig()).name, attention_kind(BertConfig(is_decoder=True)).name
    ('bidirectional', 'causal')
    """
    layout = find_layout(config.model_type)
    # an encoder may be built as a decoder
    if getattr(config, "is_decoder", False):
        return CAUSAL
    if layout is not None:
        return layout.attention_kind
    # importing transformers takes two seconds
    from transformers.models.auto import modeling_auto as auto

    fills_in = config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return BIDIRECTIONAL if fills_in else CAUSAL


def _of_first_layer(config: Any, field: str) -> int | None:
    """A number of a configuration; of one with a number for each layer (Gemma 4) the first."""
    layers = getattr(config, "per_layer_config", None)
    stated: int | None = getattr(layers[0] if layers else config, field, None)
    return stated
