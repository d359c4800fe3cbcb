"""Numbers of a model's attention, as its configuration states them: the one place that reads them.

transformers gives the same number another name in many families, and keeps those of a model that
also sees or hears in a part of the configuration.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from headscope.attention_kind import CAUSAL, UNLIMITED, AttentionKind
from headscope.errors import ModelError, first_line
from headscope.models.layout.table import find_layout

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_n_heads")
WIDTH = ("hidden_size", "n_embd", "d_model")
HEAD_WIDTH = ("head_dim", "kv_channels", "attention_head_dim", "dim_head")
VOCABULARY = ("vocab_size",)
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "context_length",
    "model_max_length",
)
WINDOWS = (
    "sliding_window",
    "sliding_window_size",
    "attention_chunk_size",
    "attention_window_size",
    "local_attention_window_len",
    "window_size",
    "keep_window_size",
)
"""Most keys that a query reaches, in layers that do not see everything before it."""
LAYER_KINDS = ("layer_types", "attention_layers")
EVERYTHING = ("full_attention", "global")
"""Values of `LAYER_KINDS` for a layer whose queries see every earlier token."""
WITHOUT_QUERIES = ("linear_attention", "conv", "mamba", "mlp", "moe")
"""Values of `LAYER_KINDS` for a layer without softmax attention, as hybrids have them."""
UNSTATED_CONTEXT = 2048
"""Tokens that BLOOM was trained on at a time (Le Scao et al. 2022)."""


@dataclass(frozen=True)
class AttentionDimensions:
    """The numbers of a model's attention, as its configuration states them."""

    layers: int
    """All of them; see `others`."""
    heads: int
    key_value_heads: int
    d_model: int
    d_head: int
    vocabulary: int
    context: int | None
    """Longest input in tokens; None where the configuration states none."""
    windows: frozenset[int]
    """Keys that queries of some layers reach; empty if all see every earlier token."""
    attention_kind: AttentionKind = CAUSAL
    short_rope: int = UNLIMITED
    """See `headscope.corpus.window.Window.short_rope`."""
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

    def check_reach(self, length: int, known: Collection[int] = ()) -> None:
        """Refuse a length at which in some layer the last token does not see the first.

        Args:
            length: in tokens.
            known: reaches of layers whose masks are known, so that it need not.

        Raises:
            ModelError: it does not.
        """
        unknown = [window for window in self.windows - set(known) if window < length]
        if unknown:
            raise ModelError(
                f"it does not know layers that reach {min(unknown)} tokens back, and windows of up "
                f"to {length} are read"
            )

    def longest_input(self, requested: int | None = None) -> int:
        """The context in tokens; the requested length or 2,048 if none is stated, as in BLOOM."""
        return self.context or requested or UNSTATED_CONTEXT


def read_dimensions(name: str, config: Any) -> AttentionDimensions:
    """The dimensions that a configuration of transformers states for the text that it writes.

    >>> from transformers import GPTBigCodeConfig
    >>> read_dimensions("starcoder", GPTBigCodeConfig(n_head=8)).key_value_heads
    1

    Args:
        name: of the model, for messages.
        config: a configuration of transformers; of a model that also sees or hears, too.

    Raises:
        ModelError: it states no attention heads, a number that no model can have, or another
            number in another layer.
    """
    try:
        text = config.get_text_config(decoder=True)
        heads = _number(text, HEADS)
        d_model = _number(text, WIDTH)
        return AttentionDimensions(
            layers=_number(text, LAYERS),
            heads=heads,
            key_value_heads=_key_value_heads(text, heads),
            d_model=d_model,
            d_head=_optional(text, HEAD_WIDTH) or d_model // heads,
            vocabulary=_number(text, VOCABULARY),
            context=_context(text),
            windows=_windows(text),
            attention_kind=attention_kind(config),
            short_rope=_short_rope(text),
        )
    except (RuntimeError, ValueError) as error:  # transformers': parts or layers that differ
        raise ModelError(
            f"{name}: its configuration ({config.model_type}) does not state attention heads that "
            f"headscope reads: {first_line(error)}"
        ) from error


def attention_kind(config: Any) -> AttentionKind:
    """The kind of a model's attention by its configuration.

    >>> from transformers import BertConfig
    >>> attention_kind(BertConfig()).name, attention_kind(BertConfig(is_decoder=True)).name
    ('bidirectional', 'causal')
    """
    layout = find_layout(config.model_type)
    # an encoder may be built as a decoder
    if layout is None or getattr(config, "is_decoder", False):
        return CAUSAL
    return layout.attention_kind


def _number(config: Any, keys: tuple[str, ...]) -> int:
    value = _optional(config, keys)
    if value is None:
        raise ValueError(f"{keys[0]} is missing")
    return value


def _optional(config: Any, keys: tuple[str, ...]) -> int | None:
    """The first of the fields that is stated; a list or a None counts as not stated."""
    for key in keys:
        value = getattr(config, key, None)
        if value is None or isinstance(value, list | tuple | dict):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{key} is {value!r}")
        return value
    return None


def _key_value_heads(config: Any, heads: int) -> int:
    if getattr(config, "multi_query", False):
        if not getattr(config, "new_decoder_architecture", False):
            return 1  # Falcon 7B and StarCoder
    elif config.model_type == "falcon" and not config.new_decoder_architecture:
        return heads  # the field is there, but the model does not read it
    part = getattr(config, "attn_config", None)  # DBRX and MPT keep it there
    of_part = None if part is None else _optional(part, KEY_VALUE_HEADS)
    return of_part or _optional(config, KEY_VALUE_HEADS) or heads


def _context(config: Any) -> int | None:
    layout = find_layout(config.model_type)
    context = _optional(config, CONTEXT)
    if context is None and not (layout is not None and layout.unbounded):
        raise ValueError(f"{CONTEXT[0]} is missing")
    if context is not None and layout is not None and layout.positions_after_padding:
        context -= (config.pad_token_id or 0) + 1
    return context


def _windows(config: Any) -> frozenset[int]:
    """The reaches that it states; what is said of the kinds of layers comes first."""
    for key in LAYER_KINDS:
        kinds = getattr(config, key, None)
        if (
            isinstance(kinds, list | tuple)
            and kinds
            and set(kinds) <= {*EVERYTHING, *WITHOUT_QUERIES}
        ):
            return frozenset()
    windows = [_optional(config, (key,)) for key in WINDOWS]
    if (local := _optional(config, ("local_attention",))) is not None:
        windows.append(local // 2)  # ModernBERT counts both sides of a query
    return frozenset(window for window in windows if window is not None)


def _short_rope(config: Any) -> int:
    """The longest text with LongRoPE's short factors; some models state them for kinds of layers.

    The other kind of rotary frequencies that depends on the text, `dynamic`, is the same for all
    texts that fit into the context.
    """
    stated = getattr(config, "rope_parameters", None) or {}
    rows = [row for row in (stated, *stated.values()) if isinstance(row, dict)]
    lengths = [
        row.get("original_max_position_embeddings", UNLIMITED)
        for row in rows
        if row.get("rope_type") == "longrope"
    ]
    return min(lengths, default=UNLIMITED)
