"""Counts and sizes that a configuration states, checked before anything is built.

transformers makes a list entry per layer while it reads a configuration, so that a number of a
billion layers would run on without end; of sizes it takes memory.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headscope.errors import ModelError

LARGEST_COUNT = 10_000
"""Most layers, heads or experts; the largest models have a few hundred of each."""
LARGEST_SIZE = 2**24
"""Largest width, vocabulary or context; the largest models have contexts of 10 million tokens."""
_COUNTED = ("layer", "head", "block", "expert")
"""Parts of the names of fields that count parts of a model."""
_NOT_COUNTED = ("dim", "feature", "size", "length", "width", "norm", "epsilon")
"""Parts of the names of fields that have such a word, and state something else."""
_SIZES = ("_dim", "_length", "_positions", "_size", "d_model", "n_ctx", "n_embd", "n_inner")
"""Ends of the names of fields that state sizes."""


def check_counts(name: str, entries: Mapping[str, Any]) -> None:
    """Refuse a configuration that states impossibly many layers or heads, or impossible sizes.

    Args:
        name: the model's name, for messages.
        entries: a configuration and its parts, such as `text_config`; or keys of a GGUF file.

    Raises:
        ModelError: a count is above `LARGEST_COUNT` or below 0, or a size above `LARGEST_SIZE`; the
            message names the field.
    """
    for field, value in entries.items():
        if isinstance(value, Mapping):
            check_counts(name, value)
        largest = _largest(field)
        if largest is None or not isinstance(value, int | float):
            continue
        # XLNet states the context −1
        if value > largest or (value < 0 and largest == LARGEST_COUNT):
            raise ModelError(
                f"{name}: its configuration states {field} {value}; expected at most {largest:,}"
            )


def config_entries(file: Path) -> Mapping[str, Any]:
    """The entries of a `config.json`; none if it is not JSON, as transformers states the reason."""
    with suppress(OSError, ValueError, RecursionError):
        entries = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(entries, Mapping):
            return entries
    return {}


def _largest(field: str) -> int | None:
    """The largest value of a field; None if it states no count and no size."""
    is_count = any(word in field for word in _COUNTED)
    is_other = any(word in field for word in _NOT_COUNTED)
    if is_count and not is_other:
        return LARGEST_COUNT
    return LARGEST_SIZE if field.endswith(_SIZES) else None
