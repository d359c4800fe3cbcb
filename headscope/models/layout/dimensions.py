"""Numbers of a model's attention, as its configuration states them: the one place that reads them.

transformers gives the same number another name in many families, and keeps those of a model that
also sees or hears in a part of the configuration.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from headscope.attention_kind import CAUSAL, UNLIMITED, AttentionKind
from headscope.errors import ModelError
from headscope.models.layout.table import UNBOUNDED, find_layout

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
    unbounded: bool = False
    """Positions are distances alone, so that the model reads texts of any length."""
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

    def longest_input(self, name: str, requested: int | None = None) -> int:
        """The context in tokens.

        A model whose positions are distances has none: the requested length, or 2,048.

        Raises:
            ModelError: the configuration states none.
        """
        if self.context is None and self.unbounded:
            return requested or UNSTATED_CONTEXT
        if self.context is None:
            raise ModelError(
                f"{name}: its configuration states no context (none of {', '.join(CONTEXT)}); "
                f"add {CONTEXT[0]}"
            )
        return self.context


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
    text = text_config(name, config)
    heads = _number(name, text, HEADS)
    d_model = _number(name, text, WIDTH)
    return AttentionDimensions(
        layers=_number(name, text, LAYERS),
        heads=heads,
        key_value_heads=_key_value_heads(name, text, heads),
        d_model=d_model,
        d_head=_optional(name, text, HEAD_WIDTH) or d_model // heads,
        vocabulary=_number(name, text, VOCABULARY),
        context=_context(name, text),
        windows=_windows(name, text),
        attention_kind=attention_kind(config),
        unbounded=text.model_type in UNBOUNDED,
        short_rope=_short_rope(text),
    )


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


def text_config(name: str, config: Any) -> Any:
    """The part of a configuration that describes the model that writes text.

    Raises:
        ModelError: it has several such parts.
    """
    try:
        return config.get_text_config(decoder=True)
    except ValueError as error:
        raise ModelError(
            f"{name}: its configuration has several parts for text: {error}"
        ) from error


def _number(name: str, config: Any, keys: tuple[str, ...]) -> int:
    value = _optional(name, config, keys)
    if value is None:
        raise ModelError(
            f"{name}: its configuration ({config.model_type}) should give {keys[0]} as a number of "
            "at least 1, but gives none; headscope reads transformers with attention heads"
        )
    return value


def _optional(name: str, config: Any, keys: tuple[str, ...]) -> int | None:
    """The first of the fields that is stated; a list or a None counts as not stated."""
    for key in keys:
        value = _field(name, config, key)
        if value is None or isinstance(value, list | tuple | dict):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{name}: its configuration ({config.model_type}) should give {key} as a number of "
                f"at least 1, but gives {value!r}; headscope reads transformers with attention "
                "heads"
            )
        return value
    return None


def _field(name: str, config: Any, key: str) -> Any:
    try:
        return getattr(config, key, None)
    except RuntimeError as error:  # transformers' word for a number that differs between layers
        raise ModelError(
            f"{name}: its configuration ({config.model_type}) gives {key} for each layer; "
            "headscope reads models whose layers have one layout"
        ) from error


def _key_value_heads(name: str, config: Any, heads: int) -> int:
    if getattr(config, "multi_query", False):
        if not getattr(config, "new_decoder_architecture", False):
            return 1  # Falcon 7B and StarCoder
    elif config.model_type == "falcon" and not config.new_decoder_architecture:
        return heads  # the field is there, but the model does not read it
    part = getattr(config, "attn_config", None)  # DBRX and MPT keep it there
    of_part = None if part is None else _optional(name, part, KEY_VALUE_HEADS)
    return of_part or _optional(name, config, KEY_VALUE_HEADS) or heads


def _context(name: str, config: Any) -> int | None:
    layout = find_layout(config.model_type)
    context = _optional(name, config, CONTEXT)
    if layout is None:
        return context
    if context is not None and layout.positions_after_padding:
        context -= (config.pad_token_id or 0) + 1
    return context


def _windows(name: str, config: Any) -> frozenset[int]:
    """The reaches that it states; what is said of the kinds of layers comes first."""
    for key in LAYER_KINDS:
        kinds = _field(name, config, key)
        if (
            isinstance(kinds, list | tuple)
            and kinds
            and set(kinds) <= {*EVERYTHING, *WITHOUT_QUERIES}
        ):
            return frozenset()
    windows = [_optional(name, config, (key,)) for key in WINDOWS]
    if (local := _optional(name, config, ("local_attention",))) is not None:
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
