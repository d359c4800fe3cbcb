"""What a configuration says of a model's attention: the one place that reads its fields.

transformers gives the same number another name in many families, and keeps those of a model that
also sees or hears in a part of the configuration. Whoever needs one takes it from here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from headscope.errors import ModelError
from headscope.heads import CROSS, DECODER, ENCODER, ONE_STACK, Stacks

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KEY_VALUE_HEADS = ("num_key_value_heads", "num_kv_heads", "kv_n_heads")
WIDTH = ("hidden_size", "n_embd", "d_model")
HEAD_WIDTH = ("head_dim", "kv_channels", "attention_head_dim", "dim_head", "d_kv")
VOCABULARY = ("vocab_size",)
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
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
    "index_topk",
)
"""How many keys a query reaches at most, in layers that do not see everything before it."""
LAYER_KINDS = ("layer_types", "attention_layers")
EVERYTHING = ("full_attention", "global")
"""What `LAYER_KINDS` call a layer whose queries see every earlier token."""
WITHOUT_QUERIES = ("linear_attention", "conv", "mamba", "mlp", "moe")
"""What they call a layer without softmax attention, as hybrids have them."""


ENCODERS = ("bert", "distilbert", "electra", "modernbert", "roberta")
"""transformers' `model_type` of those models that read a text from both sides and are read here."""
ENCODER_DECODERS = ("bart", "marian", "mbart", "mt5", "pegasus", "t5")
"""transformers' `model_type` of those models with an encoder and a decoder that are read here."""
STACK_LAYERS = {
    ENCODER: ("encoder_layers", "num_layers"),
    DECODER: ("decoder_layers", "num_decoder_layers"),
}
STACK_HEADS = ("encoder_attention_heads", "decoder_attention_heads")
RELATIVE_CONTEXT = {"mt5": 512, "t5": 512}
"""Of layouts whose positions are distances, so that their configurations need not state a context:
tokens of the texts that they were trained on (Raffel et al. 2020, 2.1)."""
_POSITIONS_AFTER_PADDING = ("roberta",)
"""Layouts that count positions from the one after the padding token's number."""


@dataclass(frozen=True)
class Layout:
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
    """How many keys the queries of some layers reach; empty where all see every earlier token."""
    both_ways: bool = False
    """Whether a token sees those after it too, as in an encoder."""
    stacks: Stacks = ONE_STACK
    """Of a model with an encoder and a decoder; its layers are then those of all of them."""
    others: tuple[int, ...] = ()
    """Of a hybrid the layers that have no softmax attention, by their numbers; the network says
    which these are, not the configuration."""

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that have softmax attention, by their own numbers in the model, in order.

        >>> from dataclasses import replace
        >>> from transformers import LlamaConfig
        >>> llama = read_layout("llama", LlamaConfig(num_hidden_layers=4))
        >>> replace(llama, others=(0, 2)).attention_layers
        (1, 3)
        """
        return tuple(layer for layer in range(self.layers) if layer not in self.others)

    def of_stack(self, letter: str) -> Layout:
        """The layout of one stack alone."""
        layers = dict(zip(self.stacks.letters, self.stacks.layers, strict=True))[letter]
        return replace(self, layers=layers, both_ways=letter == ENCODER, stacks=ONE_STACK)

    def check_reach(self, length: int, known: Collection[int] = ()) -> None:
        """Whether in every layer the last of so many tokens sees the first.

        Args:
            length: in tokens.
            known: reaches of layers whose masks are known, so that it need not.

        Raises:
            ModelError: it does not.
        """
        unknown = [each for each in self.windows - set(known) if each < length]
        if unknown:
            raise ModelError(
                f"it does not know layers that reach {min(unknown)} tokens back, and windows of up "
                f"to {length} are read"
            )

    def longest_input(self, name: str) -> int:
        """The context in tokens.

        Raises:
            ModelError: the configuration states none.
        """
        if self.context is None:
            raise ModelError(
                f"{name}: its configuration states no context (none of {', '.join(CONTEXT)}); "
                f"add {CONTEXT[0]}"
            )
        return self.context


def read_layout(name: str, config: Any) -> Layout:
    """The layout that a configuration of transformers states for the text that it writes.

    >>> from transformers import GPTBigCodeConfig
    >>> read_layout("starcoder", GPTBigCodeConfig(n_head=8)).key_value_heads
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
    stacks = _stacks(name, config)
    return Layout(
        layers=sum(stacks.layers) or _number(name, text, LAYERS),
        heads=heads,
        key_value_heads=_key_value_heads(name, text, heads),
        d_model=d_model,
        d_head=_optional(name, text, HEAD_WIDTH) or d_model // heads,
        vocabulary=_number(name, text, VOCABULARY),
        context=_context(name, text),
        windows=_windows(name, text),
        both_ways=looks_both_ways(config),
        stacks=stacks,
    )


def has_stacks(config: Any) -> bool:
    """Whether a configuration is of a model with an encoder and a decoder that is read here.

    >>> from transformers import BartConfig
    >>> has_stacks(BartConfig()), has_stacks(BartConfig(is_encoder_decoder=False))
    (True, False)
    """
    return bool(config.is_encoder_decoder) and config.model_type in ENCODER_DECODERS


def looks_both_ways(config: Any) -> bool:
    """Whether a configuration is of an encoder, whose tokens see those after them too.

    >>> from transformers import BertConfig
    >>> looks_both_ways(BertConfig()), looks_both_ways(BertConfig(is_decoder=True))
    (True, False)
    """
    return config.model_type in ENCODERS and not getattr(config, "is_decoder", False)


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


def _stacks(name: str, config: Any) -> Stacks:
    """Those of a model with an encoder and a decoder: their own attention, and that across."""
    if not has_stacks(config):
        return ONE_STACK
    layers = {letter: _number(name, config, keys) for letter, keys in STACK_LAYERS.items()}
    heads = [_optional(name, config, (key,)) for key in STACK_HEADS]
    if heads[0] != heads[1]:
        raise ModelError(
            f"{name}: its encoder has {heads[0]} heads in a layer and its decoder {heads[1]}; "
            "headscope reads models with as many in both"
        )
    return Stacks((ENCODER, DECODER, CROSS), (*layers.values(), layers[DECODER]))


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
    found = None if part is None else _optional(name, part, KEY_VALUE_HEADS)
    return found or _optional(name, config, KEY_VALUE_HEADS) or heads


def _context(name: str, config: Any) -> int | None:
    found = _optional(name, config, CONTEXT) or RELATIVE_CONTEXT.get(config.model_type)
    if found is not None and config.model_type in _POSITIONS_AFTER_PADDING:
        found -= (config.pad_token_id or 0) + 1
    return found


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
    found = [_optional(name, config, (key,)) for key in WINDOWS]
    if (local := _optional(name, config, ("local_attention",))) is not None:
        found.append(local // 2)  # ModernBERT counts both sides of a query
    return frozenset(window for window in found if window is not None)
