"""Sets in a configuration what a GGUF file states and transformers' GGUF reader leaves out.

transformers reads a few keys of each family and drops all others: scaled rotary positions,
softcaps, the width of a head. The model would be built with defaults, and its own eager attention
would be wrong in the same way. So this module sets each key of the file's architecture, or checks
that its value changes nothing, or refuses the file. Where a file states nothing, the default is
that of llama.cpp, which the file was written for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from headscope.errors import ModelError

CONVERSION = 2
"""Version of what is set here; models that an earlier version unpacked are unpacked again."""
ROTARY_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors of divisors of the rotary frequencies."""
_NORM_EPSILON = ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps")
_ATTRIBUTES = {
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.layer_norm_epsilon": _NORM_EPSILON,
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps"),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "block_count": ("num_hidden_layers",),
    "context_length": ("max_position_embeddings",),
    "embedding_length": ("hidden_size",),
    "expert_count": ("num_experts", "num_local_experts"),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_weights_norm": ("norm_topk_prob",),
    "feed_forward_length": ("intermediate_size", "n_inner", "ffn_hidden_size"),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "shortconv.l_cache": ("conv_L_cache",),
    "vocab_size": ("vocab_size",),
}
"""Keys, and the attributes of configurations that hold their values; a family has one of them."""
_WITHOUT_EFFECT: dict[str, Callable[[Any], bool]] = {
    "attention.causal": lambda value: value is True,
    "attention.clamp_kqv": lambda value: value == 0,
    "embedding_scale": lambda value: value == 1,
    "expert_count": lambda value: value == 0,
    "expert_gating_func": lambda value: value == 1,  # softmax
    "expert_used_count": lambda value: value == 0,
    "expert_weights_scale": lambda value: value in (0, 1),
    "logit_scale": lambda value: value == 1,
    "pooling_type": lambda _: True,
    "residual_scale": lambda value: value == 1,
    "rope.scaling.finetuned": lambda _: True,
    "rope.scaling.yarn_attn_factor": lambda value: value == 1,
    "rope.scaling.yarn_ext_factor": lambda value: value == 1,
    "rope.scaling.yarn_log_multiplier": lambda value: value == 0,
    "tensor_data_layout": lambda _: True,
}
"""Tests of values that change nothing in a decoder of a family without the attribute."""
_ROTARY = (
    "rope.dimension_count",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scale_linear",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
)
_PARTLY_ROTARY = ("minimax_m2", "nemotron", "phi3", "stablelm")
"""Families of transformers that can rotate a part of each head."""
_WINDOWED = ("gemma2", "gemma3_text", "gpt_oss", "mistral", "phi3", "starcoder2")
"""Families of transformers that attend within a window if their configuration states one."""
_NARROW_QUERIES = {"gemma2": 46, "gemma3_text": 62}
"""Layers of Gemma's 27B models. Their files do not state that scores are divided by √(d_model /
heads) in place of √d_head; llama.cpp concludes it from this number too (`src/llama-model.cpp`)."""
_TIMES_SCALE = 0.1
"""YaRN multiplies the rotations by 1 + 0.1 ln(factor) (Peng et al. 2023, eq. 22)."""


@dataclass(frozen=True)
class GgufHeader:
    """The header of a GGUF file, which describes its model."""

    values: dict[str, Any]
    """Values by keys, without the name of the architecture."""
    divisors: dict[str, list[float]]
    """Divisors of the rotary frequencies by the names of their tensors."""


def read_header(path: Path) -> GgufHeader:
    """The keys of a GGUF file's architecture, and the tensors that change rotary positions."""
    # its import takes a tenth of a second, which the command line's checks do not need
    import gguf

    # keys without the name of the architecture
    reader = gguf.GGUFReader(path)
    prefix = f"{reader.fields['general.architecture'].contents()}."
    values = {
        key.removeprefix(prefix): field.contents()
        for key, field in reader.fields.items()
        if key.startswith(prefix)
    }
    # tensors that divide rotary frequencies, one number for each pair of dimensions
    divisors = {}
    for tensor in reader.tensors:
        if tensor.name in ROTARY_TENSORS:
            numbers = gguf.dequantize(tensor.data, tensor.tensor_type)
            divisors[tensor.name] = [float(number) for number in numbers.flatten()]
    return GgufHeader(values, divisors)


def complete_config(name: str, config: Any, header: GgufHeader) -> None:
    """Set in a configuration, in place, what the header of its GGUF file states.

    Args:
        name: of the model, for messages.
        config: as transformers' GGUF reader returns it.
        header: of the same file.

    Raises:
        ModelError: a key, its value or a tensor cannot be set in this family's configuration; the
            message names it.
    """
    # rotary keys are set together at the end
    values = dict(header.values)
    for key in _ROTARY:
        values.pop(key, None)
    _set_windows(name, config, values)
    family = type(config)()
    for key, value in values.items():
        if key not in ("attention.key_length", "attention.value_length"):
            _set_value(name, config, family, key, value)
    # values have the width of keys in all models that are read
    usual = config.hidden_size // config.num_attention_heads
    key_width = header.values.get("attention.key_length", usual)
    if header.values.get("attention.value_length", key_width) != key_width:
        stated = header.values["attention.value_length"]
        _refuse(name, "attention.value_length", stated, f"its keys have width {key_width}")
    if hasattr(family, "head_dim"):
        config.head_dim = key_width
    elif key_width != usual:
        _refuse_unknown(name, config, "attention.key_length", key_width)
    # sizes of Gemma 2 and 3 scale queries in different ways
    if config.model_type in _NARROW_QUERIES:
        is_largest = config.num_hidden_layers == _NARROW_QUERIES[config.model_type]
        width = config.hidden_size // config.num_attention_heads
        config.query_pre_attn_scalar = width if is_largest else config.head_dim
    _set_rotary(name, config, header)


def _refuse(name: str, key: str, stated: object, reason: str) -> NoReturn:
    raise ModelError(f"{name}: the file states {key} = {stated!s:.100}; {reason}")


def _refuse_unknown(name: str, config: Any, key: str, stated: object) -> NoReturn:
    reason = f"headscope does not read this for {config.model_type}, and it may change attention"
    _refuse(name, key, stated, reason)


def _set_value(name: str, config: Any, family: Any, key: str, value: Any) -> None:
    """Set one value, or check that it changes nothing."""
    if key == "attention.head_count_kv" and not _reads_key_heads(config, family, value):
        _refuse_unknown(name, config, key, value)
    attributes = [attribute for attribute in _ATTRIBUTES.get(key, ()) if hasattr(family, attribute)]
    if attributes:
        # the reader of transformers splits LFM2's list by layer
        if not isinstance(value, list):
            setattr(config, attributes[0], value)
        return
    is_without_effect = _WITHOUT_EFFECT.get(key)
    if is_without_effect is not None and is_without_effect(value):
        return
    if not _is_as_built(config, key, value):
        _refuse_unknown(name, config, key, value)


def _reads_key_heads(config: Any, family: Any, value: Any) -> bool:
    """Test if a number of key heads can be set."""
    if isinstance(value, list):
        return bool(config.model_type == "lfm2")
    if config.model_type == "falcon":
        # the order of the queries in a file with several key heads is not undone by transformers
        return bool(value == 1)
    return hasattr(family, "num_key_value_heads") or value == config.num_attention_heads


def _is_as_built(config: Any, key: str, value: Any) -> bool:
    """Test if transformers builds the model with this value, though no attribute states it."""
    family = config.model_type
    match key:
        case "attention.head_count_kv":
            return True  # tested by `_reads_key_heads`
        case "attention.max_alibi_bias":
            return bool(value == (8 if family == "bloom" else 0))
        case "context_length" | "feed_forward_length":
            return bool(family == "bloom")  # ALiBi has no limit; the shapes tell the width
        case "expert_gating_func" | "expert_feed_forward_length":
            return bool(family == "minimax_m2")
        case "use_parallel_residual":
            return bool(value == getattr(config, key, None))
    return False


def _set_windows(name: str, config: Any, values: dict[str, Any]) -> None:
    """Set the width of sliding windows and the layers that have one, and remove both keys."""
    width = values.pop("attention.sliding_window", None)
    if config.model_type in _WINDOWED:
        if width is not None:
            config.sliding_window = width or None  # Phi-4 states 0 and has none
    elif width and width < values.get("context_length", math.inf):
        _refuse_unknown(name, config, "attention.sliding_window", width)
    # which layers have a window: every n-th has none, or a list states it
    pattern = values.pop("attention.sliding_window_pattern", None)
    if pattern is None:
        return
    if getattr(config, "layer_types", None) is None:
        _refuse_unknown(name, config, "attention.sliding_window_pattern", pattern)
    layers = values.get("block_count", config.num_hidden_layers)
    if not isinstance(pattern, list):
        # each n-th layer is a full one
        pattern = [(layer + 1) % pattern != 0 for layer in range(layers)]
    if len(pattern) != layers:
        reason = f"the model has {layers} layers"
        _refuse(name, "attention.sliding_window_pattern", pattern, reason)
    config.layer_types = ["sliding_attention" if slides else "full_attention" for slides in pattern]


def _set_rotary(name: str, config: Any, header: GgufHeader) -> None:
    """Set the rotary parameters."""
    values = header.values
    # a family without rotary positions must state none
    parameters = getattr(config, "rope_parameters", None)
    if parameters is None:
        stated = [key for key in (*_ROTARY, *ROTARY_TENSORS) if key in (*values, *header.divisors)]
        if stated:
            _refuse_unknown(name, config, stated[0], values.get(stated[0], "a tensor"))
        return
    scaling = _scaling(name, config, header)
    if "original_max_position_embeddings" in scaling and hasattr(
        config, "original_max_position_embeddings"
    ):  # Phi-3 states it twice
        original = scaling["original_max_position_embeddings"]
        config.original_max_position_embeddings = original
    # some families can rotate a part of each head alone; the others would rotate all of it
    width = _head_width(config)
    rotated = values.get("rope.dimension_count", width)
    if config.model_type in _PARTLY_ROTARY:
        scaling["partial_rotary_factor"] = rotated / width
    elif rotated != width:
        _refuse_unknown(name, config, "rope.dimension_count", rotated)
    # one set of rotary numbers for all layers
    if "full_attention" not in parameters:
        theta = values.get("rope.freq_base", parameters["rope_theta"])
        if "rope.freq_base_swa" in values and values["rope.freq_base_swa"] != theta:
            stated = values["rope.freq_base_swa"]
            _refuse_unknown(name, config, "rope.freq_base_swa", stated)
        config.rope_parameters = {"rope_theta": theta, **scaling}
        return
    # sliding layers have a base of their own
    theta = values.get("rope.freq_base", parameters["full_attention"]["rope_theta"])
    sliding = dict(parameters["sliding_attention"])
    sliding["rope_theta"] = values.get("rope.freq_base_swa", sliding["rope_theta"])
    # Gemma 3 scales the positions of its full layers alone
    full = {"rope_theta": theta, **scaling}
    config.rope_parameters = {"full_attention": full, "sliding_attention": sliding}


def _head_width(config: Any) -> int:
    usual: int = config.hidden_size // config.num_attention_heads
    return getattr(config, "head_dim", None) or usual


def _scaling(name: str, config: Any, header: GgufHeader) -> dict[str, Any]:
    """The kind of scaled rotary positions and its numbers, as transformers names them."""
    values = header.values
    # the factor has two names
    factor = values.get("rope.scaling.factor") or values.get("rope.scale_linear") or 1.0
    # llama.cpp takes a factor without a type as a linear one
    kind = values.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn", "longrope"):
        allowed = "headscope reads none, linear, yarn and longrope"
        _refuse(name, "rope.scaling.type", kind, allowed)
    is_scaled = kind == "yarn" or (kind == "linear" and factor != 1)
    # divisors of frequencies are a scaling of their own
    if header.divisors:
        if is_scaled:
            reason = f"it contains {', '.join(header.divisors)} too, which is another scaling"
            _refuse(name, "rope.scaling.type", kind, reason)
        return _divided(name, config, header)
    if is_scaled and config.model_type == "phi3":
        _refuse_unknown(name, config, "rope.scaling.type", kind)
    # what transformers would ignore is refused
    attn_factor = values.get("rope.scaling.attn_factor", 1.0)
    if kind == "longrope":
        _refuse(name, "rope.scaling.type", kind, f"it lacks {' and '.join(ROTARY_TENSORS[1:])}")
    if kind != "yarn" and attn_factor != 1:
        _refuse_unknown(name, config, "rope.scaling.attn_factor", attn_factor)
    if not is_scaled:
        return {"rope_type": "default"}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    return {
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": _original_context(config, values),
        "attention_factor": attn_factor * (1 + _TIMES_SCALE * math.log(factor)),
        "beta_fast": values.get("rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": values.get("rope.scaling.yarn_beta_slow", 1.0),
    }


def _original_context(config: Any, values: dict[str, Any]) -> int:
    context: int = config.max_position_embeddings
    return values.get("rope.scaling.original_context_length") or context


def _divided(name: str, config: Any, header: GgufHeader) -> dict[str, Any]:
    """Rotary frequencies divided by the numbers of a tensor.

    transformers calls it LongRoPE. Llama 3's scaling is the same with one tensor for short and long
    texts: llama.cpp keeps the divisors that follow from its four numbers.
    """
    complete = ({ROTARY_TENSORS[0]}, set(ROTARY_TENSORS[1:]))
    tensors = header.divisors
    # the set of tensors, and the length of each
    if set(tensors) not in complete:
        allowed = f"headscope reads {ROTARY_TENSORS[0]}, or {' with '.join(ROTARY_TENSORS[1:])}"
        _refuse(name, "rotary tensors", ", ".join(tensors), allowed)
    width = header.values.get("rope.dimension_count", _head_width(config))
    for key, numbers in tensors.items():
        if len(numbers) != width // 2 or not all(0 < number < math.inf for number in numbers):
            reason = f"headscope reads {width // 2} numbers above 0"
            _refuse(name, key, numbers, reason)
    # one tensor for all lengths, or two for short and long texts
    both = tensors.get(ROTARY_TENSORS[0], [])
    original = _original_context(config, header.values)
    return {
        "rope_type": "longrope",
        "short_factor": tensors.get(ROTARY_TENSORS[1], both),
        "long_factor": tensors.get(ROTARY_TENSORS[2], both),
        "original_max_position_embeddings": config.max_position_embeddings if both else original,
        "attention_factor": header.values.get("rope.scaling.attn_factor", 1.0),
    }
