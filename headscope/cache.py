"""The pattern cache of a run folder: the examples' patterns, read head by head when asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headscope.errors import RunError
from headscope.example import Example

FOLDER, PATTERNS, INDEX = "patterns", "examples.safetensors", "examples.json"


def write_examples(examples: Sequence[Example], run_folder: Path) -> None:
    """Write `patterns/examples.safetensors` (float16) and `patterns/examples.json`."""
    folder = run_folder / FOLDER
    folder.mkdir()
    arrays = {f"{i:05d}": np.ascontiguousarray(e.pattern) for i, e in enumerate(examples)}
    save_file(arrays, folder / PATTERNS)
    index = {
        "sha256": hashlib.sha256((folder / PATTERNS).read_bytes()).hexdigest(),
        "examples": [_facts(example) for example in examples],
    }
    text = json.dumps(index, ensure_ascii=True, allow_nan=False, indent=0)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def read_examples(
    run_folder: Path, *, layer: int | None = None, head: int | None = None
) -> list[Example]:
    """The examples of a run, of one layer or head only when asked; none when none were kept.

    Only the patterns asked for are read into memory; the file's checksum is verified first.

    Raises:
        RunError: the cache is damaged or not the one that its index describes.
    """
    folder = run_folder / FOLDER
    index = _checked_index(run_folder)
    if not index:
        return []
    try:
        with safe_open(folder / PATTERNS, framework="numpy") as patterns:
            return [
                _example(facts, patterns.get_tensor(f"{i:05d}"))
                for i, facts in enumerate(index)
                if layer in (None, facts["layer"]) and head in (None, facts["head"])
            ]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise RunError(f"{folder}: the pattern cache is damaged: {error}") from error


def _checked_index(run_folder: Path) -> list[dict[str, Any]]:
    """What the index says of each example, once the patterns' checksum has proved right."""
    folder = run_folder / FOLDER
    if not (folder / INDEX).is_file():
        return []
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        found = hashlib.sha256((folder / PATTERNS).read_bytes()).hexdigest()
        examples: list[dict[str, Any]] = list(index["examples"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder}: the pattern cache is damaged: {error}") from error
    if found != index["sha256"]:
        raise RunError(f"{folder / PATTERNS}: this file is not the one that was written")
    return examples


class StoredExamples(Sequence[Example]):
    """The examples of a run folder, read when one of them is first asked for."""

    def __init__(self, run_folder: Path) -> None:
        """Check the files of the cache.

        Raises:
            RunError: it is damaged.
        """
        self._folder = run_folder
        self._count = len(_checked_index(run_folder))

    @cached_property
    def _examples(self) -> list[Example]:
        return read_examples(self._folder)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        return self._examples[index]


def _facts(example: Example) -> dict[str, Any]:
    facts = {name: value for name, value in vars(example).items() if name != "pattern"}
    return facts | {"mass": None if np.isnan(example.mass) else round(example.mass, 6)}


def _example(facts: dict[str, Any], pattern: np.ndarray) -> Example:
    return Example(
        **facts
        | {
            "mass": float("nan") if facts["mass"] is None else facts["mass"],
            "tokens": tuple(facts["tokens"]),
            "targets": tuple(facts["targets"]),
            "pattern": pattern,
        }
    )
