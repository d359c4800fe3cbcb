"""Patterns in a run folder: those of examples, read when asked for, and heads' mean patterns."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from headscope.corpus.read import file_sha256
from headscope.errors import RunError
from headscope.measure.example import Example, Picture
from headscope.measure.tally import pictured
from headscope.runs.folder import INDEX, MEANS, PATTERNS, UNREADABLE, encoded, readable_path
from headscope.runs.write import write_file

_TEXT = "mean"
_HEADS = ".heads"
"""Behind a stimulus' name: the layers and heads whose pictures on it are kept."""

Means = Float[ndarray, "layer head query key"]
Pictures = Mapping[tuple[int, int], Picture]


def write_examples(examples: Sequence[Example], run_folder: Path) -> None:
    """Write `patterns/examples.safetensors` (float16) and `patterns/examples.json`.

    Of a pattern that looks at no later key the rows are written up to the query alone.
    """
    arrays = {f"{i:05d}": _folded(example.pattern) for i, example in enumerate(examples)}
    write_file(run_folder / PATTERNS, lambda path: save_file(arrays, path))
    index = {
        "sha256": file_sha256(run_folder / PATTERNS),
        "examples": [_facts(example) for example in examples],
    }
    text = json.dumps(index, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    write_file(run_folder / INDEX, encoded(text + "\n"))


def read_examples(run_folder: Path) -> list[Example]:
    """The examples of a run; none when none were kept.

    Raises:
        RunError: they cannot be read.
    """
    if not os.path.lexists(run_folder / INDEX):
        return []
    index_file, patterns_file = (readable_path(run_folder, name) for name in (INDEX, PATTERNS))
    try:
        index = json.loads(index_file.read_text(encoding="utf-8"))
        with safe_open(patterns_file, framework="numpy") as patterns:
            return [
                _example(facts, patterns.get_tensor(f"{i:05d}"))
                for i, facts in enumerate(index["examples"])
            ]
    except UNREADABLE as error:
        raise RunError(
            f"{patterns_file.parent}: the examples are damaged: {error!s:.200}"
        ) from error


class StoredExamples(Sequence[Example]):
    """The examples of a run folder, read when one of them is first asked for."""

    def __init__(self, run_folder: Path) -> None:
        self._folder = run_folder

    @cached_property
    def _examples(self) -> list[Example]:
        return read_examples(self._folder)

    def __len__(self) -> int:
        return len(self._examples)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        return self._examples[index]


def write_means(means: Means | None, pictures: Pictures, run_folder: Path) -> None:
    """Write them in half precision; of other stimuli than text only those of heads drawn there."""
    arrays = {} if means is None else {_TEXT: np.ascontiguousarray(means, np.float16)}
    for name in dict.fromkeys(picture.stimulus for picture in pictures.values()):
        patterns = {
            at: picture.pattern for at, picture in pictures.items() if picture.stimulus == name
        }
        arrays[name] = np.stack(list(patterns.values())).astype(np.float16)
        arrays[name + _HEADS] = np.array(list(patterns), np.int32)
    write_file(run_folder / MEANS, lambda path: save_file(arrays, path))


def read_means(run_folder: Path) -> tuple[Means | None, Pictures]:
    """The mean patterns of a run on text, and heads' pictures on other stimuli.

    None and none where they were not measured.

    Raises:
        RunError: the file is not what was written, no regular file, or lies elsewhere.
    """
    if not os.path.lexists(run_folder / MEANS):
        return None, {}
    path = readable_path(run_folder, MEANS)
    try:
        arrays = load_file(path)
        pictures = {
            (layer, head): Picture(name, pattern)
            for name in pictured()
            if name in arrays
            for (layer, head), pattern in zip(
                arrays[name + _HEADS].tolist(), arrays[name], strict=True
            )
        }
    except UNREADABLE as error:
        raise RunError(f"{path}: the mean patterns are damaged: {error!s:.200}") from error
    return arrays.get(_TEXT), pictures


def _facts(example: Example) -> dict[str, Any]:
    facts = {name: value for name, value in vars(example).items() if name != "pattern"}
    left_out = [round(share, 6) for share in example.left_out]
    mass = None if np.isnan(example.mass) else round(example.mass, 6)
    return facts | {"mass": mass, "left_out": left_out}


def _example(facts: dict[str, Any], stored: ndarray) -> Example:
    lists = ("tokens", "targets", "positions", "left_out", "masses")
    mass = float("nan") if facts["mass"] is None else facts["mass"]
    pattern = _unfolded(stored, len(facts["tokens"]))
    return Example(
        **facts | {name: tuple(facts[name]) for name in lists} | {"mass": mass, "pattern": pattern}
    )


def _folded(pattern: Float[ndarray, "query key"]) -> ndarray:
    """A pattern as it is written: of a causal one the rows in turn, each up to its query.

    >>> _folded(np.array([[1, 0], [0.25, 0.75]], np.float16)).tolist()
    [1.0, 0.25, 0.75]
    """
    if np.triu(pattern, 1).any():
        return np.ascontiguousarray(pattern)
    return np.ascontiguousarray(pattern[np.tril_indices(len(pattern))])


def _unfolded(stored: ndarray, size: int) -> Float[ndarray, "query key"]:
    """The pattern of so many tokens that was written."""
    if stored.shape == (size, size):
        return stored
    pattern = np.zeros((size, size), stored.dtype)
    pattern[np.tril_indices(size)] = stored
    return pattern
