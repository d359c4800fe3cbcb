"""The entries of a configuration, checked one by one before anything is built by them.

transformers checks what it has a type for. It passes on a NaN, an infinity, a number of 30 digits
and an architecture that is no name, and the first that fails is then far from the cause.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

from headscope.errors import ModelError

LARGEST_WHOLE = 2**63 - 1
LARGEST = 3.4028234663852886e38
"""Of numbers with a fraction: weights are multiplied by them in single precision at most."""
UNBOUNDED = ("time_step_limit",)
"""Entries whose upper end is an infinity in published models (Mamba 2)."""
QUANTISATION_GROUPS = ("quantization_config",)
"""Groups that `headscope.models.quantised` reads."""

COUNTS = (
    "n_layer",
    "n_layers",
    "num_layers",
    "num_hidden_layers",
    "block_count",
    "n_head",
    "n_heads",
    "num_attention_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "n_embd",
    "d_model",
    "hidden_size",
    "head_dim",
    "intermediate_size",
    "n_inner",
    "d_ff",
    "ffn_dim",
    "vocab_size",
    "n_positions",
    "max_position_embeddings",
    "max_seq_len",
    "n_ctx",
)
"""Numbers of a configuration that are at least 1 wherever they are given."""
_LAYERS, _POSITIONS = COUNTS[:5], COUNTS[-4:]
CHECK = "does config.json belong to these weights, and is every file whole?"
PRECISION = re.compile(r"auto|b?float\d+(?:_\w+)?|u?int\d+|half|double|bool|complex\d+")
"""Names of precisions of torch."""


@dataclass(frozen=True)
class Rule:
    """Values that an entry may have, by its name."""

    names: re.Pattern[str]
    words: str
    """What would do, for a message."""
    allows: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return isinstance(value, bool) or (_is_number(value) and 0 <= value <= 1)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_names(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_name, value))


def _is_group(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_precision(value: Any) -> bool:
    if isinstance(value, Mapping):  # one for each part of a model that also sees or hears
        return all(map(_is_precision, value.values()))
    name = str(value).removeprefix("torch.")
    # a configuration of transformers has a torch.dtype, which is not imported for its sake
    return (isinstance(value, str) or type(value).__name__ == "dtype") and bool(
        PRECISION.fullmatch(name)
    )


def _is_token(value: Any) -> bool:
    tokens = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(token, int) and not isinstance(token, bool) for token in tokens)


def _rule(names: str, words: str, allows: Callable[[Any], bool]) -> Rule:
    return Rule(re.compile(names), words, allows)


RULES = (
    _rule("architectures", "a list of names, such as GPT2LMHeadModel", _is_names),
    _rule("layer_types", "a list of names, such as full_attention", _is_names),
    _rule("model_type", "a name, such as gpt2", _is_name),
    _rule("rope_type", "a name, such as default", _is_name),
    _rule("(?:torch_)?dtype", "the name of a precision, such as float32", _is_precision),
    _rule("rope_parameters|rope_scaling|text_config|attn_config", "a group in braces", _is_group),
    _rule("id2label|label2id|auto_map", "a group in braces", _is_group),
    _rule(r"\w+_token_id", "a whole number or a list of them", _is_token),
    _rule(r"(?:\w+_)?(?:eps|epsilon)", "a number from 0 to 1", _is_share),
    _rule(
        r"(?:\w+_)?(?:dropout|pdrop|layerdrop)(?:_(?:rate|prob|p|ratio))?",
        "a number from 0 to 1",
        _is_share,
    ),
    _rule("partial_rotary_factor|rotary_pct", "a number from 0 to 1", _is_share),
    _rule(r"(?:\w+_)?rope_theta|rotary_emb_base|rotary_base", "a number above 0", _is_positive),
)
"""One row for each kind of entry that a model cannot be read without; None stands for no entry."""


def check_values(source: str, entries: Mapping[Any, Any]) -> None:
    """Refuse entries that no model can have.

    Args:
        source: of the entries, as the subject of a message, such as "m: its configuration".
        entries: by their names; a group within them is looked at, too.

    Raises:
        ModelError: an entry is of the wrong type, or is or holds a number that is NaN, infinite or
            too large; the message names it, its value, and what would do.
    """
    for path, value in _entries(entries):
        name = path.rpartition(".")[2]
        rule = next((candidate for candidate in RULES if candidate.names.fullmatch(name)), None)
        # transformers writes an empty model_type for a group that is no model of its own
        is_empty_group = name == "model_type" and value == "" and path != name
        if rule is not None and value is not None and not (is_empty_group or rule.allows(value)):
            words: str | None = rule.words
        else:
            words = _number_wanted(name, value)
        if words is not None:
            raise ModelError(f"{source} gives {path} as {_short(value)}; it should be {words}")


def check_counts(
    name: str, config: Mapping[Any, Any], shapes: Mapping[str, tuple[int, ...]] | None
) -> None:
    """Refuse numbers that no model can have, before anything is built by them.

    Args:
        name: of the model, for messages.
        config: a configuration as its file gives it; one within another is looked at, too.
        shapes: of all tensors; None where there are none.

    Raises:
        ModelError: a count is not a whole number of at least 1, or there are more layers than
            tensors to make them of, or it is more than all numbers in the weights.
    """
    numbers_in_all = inf if shapes is None else sum(map(prod, shapes.values()))
    for key, value in config.items():
        if isinstance(value, Mapping):
            check_counts(name, value, shapes)
        # a list gives a number for each layer
        if key not in COUNTS or value is None or isinstance(value, list):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{name}: its configuration gives {key} as {value!r:.40}; "
                "it should be a whole number of at least 1"
            )
        if shapes is not None and key in _LAYERS and value > len(shapes):
            raise ModelError(
                f"{name}: its configuration gives {key} as {value:,}, but the weights are "
                f"{len(shapes):,} tensors, too few for as many layers; {CHECK}"
            )
        if key not in _POSITIONS and value > numbers_in_all:
            raise ModelError(
                f"{name}: its configuration gives {key} as {value:,}, but the weights are "
                f"{numbers_in_all:,} numbers in all; {CHECK}"
            )


def find_entry(entries: Mapping[Any, Any], value: Any) -> str | None:
    """The first entry with this value, as `group.name`; None where none has it.

    >>> find_entry({"a": 1, "rope": {"type": "nosuch"}}, "nosuch")
    'rope.type'
    """
    return next((path for path, entry in _entries(entries) if entry == value), None)


def _entries(entries: Mapping[Any, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in entries.items():
        path = f"{group}{name}"
        yield path, value
        if isinstance(value, Mapping) and name not in QUANTISATION_GROUPS:
            yield from _entries(value, f"{path}.")


def _number_wanted(name: str, value: Any) -> str | None:
    """Words for what a number should be that is none of a model's; None where nothing is wrong."""
    if isinstance(value, list | tuple):
        messages = (_number_wanted(name, item) for item in value)
        return next((words for words in messages if words is not None), None)
    if not _is_number(value) or (name in UNBOUNDED and value == math.inf):
        return None
    if isinstance(value, int):
        return None if abs(value) <= LARGEST_WHOLE else "a whole number of at most 64 bits"
    if not math.isfinite(value):
        return "a finite number"
    return None if abs(value) <= LARGEST else f"a number of at most {LARGEST:.2g}"


def _short(value: Any) -> str:
    """A value on one line; of a very long number its digits are counted."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**40:
        return "a number of more than 40 digits"
    return f"{value!r:.60}"


def read_config_file(path: Path, what: str, *, advice: str, writer: str) -> dict[str, Any]:
    """The entries of a configuration in JSON.

    Args:
        path: the file.
        what: the file in words, for messages.
        advice: how to come by a whole one.
        writer: the library whose `save_pretrained` writes such files.

    Raises:
        ModelError: the file cannot be read, is no JSON, or holds no entries.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{what} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # no UTF-8 is a ValueError, too
        raise ModelError(f"{what} is not JSON: {error!s:.200}; {advice}") from error
    if not isinstance(entries, dict):
        raise ModelError(
            f"{what} is no configuration but {entries!r:.40}; it should be a group of entries in "
            f"braces, as save_pretrained of {writer} writes it"
        )
    return entries


def read_entries(name: str, file: Path) -> dict[str, Any]:
    """The entries of a model's config.json."""
    advice = "download it again, or save the model with transformers' save_pretrained"
    return read_config_file(file, f"{name}: {file.name}", advice=advice, writer="transformers")
