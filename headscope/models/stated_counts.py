"""Numbers of layers and heads that a configuration states, checked before anything is built.

transformers makes a list entry per layer while it reads a configuration, so that a number of a
billion layers would run on without end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.errors import ModelError

LARGEST_COUNT = 10_000
"""Most layers, heads or experts; the largest models have a few hundred of each."""
_COUNTED = ("layer", "head", "block", "expert")
"""Parts of the names of fields that count parts of a model."""
_NOT_COUNTED = ("dim", "size", "length", "width", "norm", "epsilon")
"""Parts of the names of fields that have such a word, and state something else."""


@dataclass(frozen=True)
class _Field:
    name: str
    value: Any


def check_counts(name: str, file: Path) -> None:
    """Refuse a configuration that states impossibly many layers or heads.

    Args:
        name: the model's name, for messages.
        file: a `config.json` or a `.gguf` file.

    Raises:
        ModelError: a count is above `LARGEST_COUNT` or below 0; the message names the field.
    """
    for field in _stated(file):
        is_count = any(word in field.name for word in _COUNTED)
        is_other = any(word in field.name for word in _NOT_COUNTED)
        if not is_count or is_other or not isinstance(field.value, int):
            continue
        if not 0 <= field.value <= LARGEST_COUNT:
            raise ModelError(
                f"{name}: its configuration states {field.name} {field.value}; expected at most "
                f"{LARGEST_COUNT:,}"
            )


def _stated(file: Path) -> Iterator[_Field]:
    if file.suffix.lower() == ".gguf":
        # its import takes a tenth of a second, which the command line's checks do not need
        import gguf

        for key, field in gguf.GGUFReader(file).fields.items():
            yield _Field(key, field.contents())
        return
    # transformers states what is wrong with a file that is not JSON
    with suppress(OSError, ValueError, RecursionError):
        yield from _fields_of(json.loads(file.read_text(encoding="utf-8")))


def _fields_of(content: Any) -> Iterator[_Field]:
    """The fields of a configuration and of its parts, such as `text_config`."""
    if not isinstance(content, Mapping):
        return
    for key, value in content.items():
        yield _Field(str(key), value)
        yield from _fields_of(value)
