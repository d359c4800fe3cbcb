"""The pattern cache of a run folder: the examples' patterns, read head by head when asked for."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from headscope.corpus.read import file_sha256
from headscope.errors import RunError
from headscope.measure.example import STEPS, Example, stretches_left_out
from headscope.runs.folder import INDEX, PATTERNS, encoded, readable_path
from headscope.runs.write import write_file

UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    SafetensorError,
)
"""What reading a file of a run can raise when it was altered: safetensors has no one family."""


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


def read_examples(
    run_folder: Path, *, layer: int | None = None, head: int | None = None
) -> list[Example]:
    """The examples of a run, of one layer or head only when asked; none when none were kept.

    Only the patterns asked for are read into memory; the file's checksum is verified first.

    Raises:
        RunError: the cache is damaged or not the one that its index describes.
    """
    index = _checked_index(run_folder)
    if not index:
        return []
    try:
        with safe_open(run_folder / PATTERNS, framework="numpy") as patterns:
            return [
                _example(facts, patterns.get_tensor(f"{i:05d}"))
                for i, facts in enumerate(index)
                if layer in (None, facts["layer"]) and head in (None, facts["head"])
            ]
    except UNREADABLE as error:
        raise _damaged(run_folder, error) from error


def _checked_index(run_folder: Path) -> list[dict[str, Any]]:
    """Entries of the index for each example, once the patterns have proved right."""
    if not os.path.lexists(run_folder / INDEX):
        return []
    index_file, patterns = readable_path(run_folder, INDEX), readable_path(run_folder, PATTERNS)
    try:
        index = json.loads(index_file.read_text(encoding="utf-8"))
        examples: list[dict[str, Any]] = list(index["examples"])
        for facts in examples:
            _check_facts(facts)
        stated = index["sha256"]
    except UNREADABLE as error:
        raise _damaged(run_folder, error) from error
    if file_sha256(patterns) != stated:
        raise RunError(f"{patterns}: this file is not the one that was written")
    try:
        with safe_open(patterns, framework="numpy") as stored:
            for i, facts in enumerate(examples):
                _check_pattern(stored.get_tensor(f"{i:05d}"), len(facts["tokens"]))
    except UNREADABLE as error:
        raise _damaged(run_folder, error) from error
    return examples


def _damaged(run_folder: Path, error: Exception) -> RunError:
    folder = (run_folder / INDEX).parent
    return RunError(f"{folder}: the pattern cache is damaged: {error!s:.200}")


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
    left_out = [round(share, 6) for share in example.left_out]
    mass = None if np.isnan(example.mass) else round(example.mass, 6)
    return facts | {"mass": mass, "left_out": left_out}


def _check_facts(facts: dict[str, Any]) -> None:
    """Refuse an example that cannot be drawn: every place lies among its tokens."""
    size = len(facts["tokens"])
    places = [facts["query"], *facts["targets"]]
    numbers = [facts["layer"], facts["head"], *places]
    texts = [facts["relation"], facts["kind"], facts["window"], *facts["tokens"]]
    mass = 0.0 if facts["mass"] is None else facts["mass"]
    fit = (
        facts.keys() == _FACTS
        and isinstance(facts["tokens"], list)
        and all(type(number) is int for number in numbers)
        and all(isinstance(text, str) for text in texts)
        and all(-1 <= position < size for position in places)
        and isinstance(mass, int | float)
        and 0 <= mass <= 1 + TOLERANCE
        and _fits(size, **{name: facts[name] for name in _EXCERPT})
    )
    if not fit:
        raise ValueError(f"no example of a run: {facts!r:.100}")


def _fits(
    size: int,
    *,
    positions: Any,
    left_out: Any,
    length: Any,
    more_targets: Any,
    masses: Any,
) -> bool:
    """True if the shown tokens lie in their window in order, and each gap has its attention."""
    if not isinstance(positions, list | tuple) or not isinstance(left_out, list | tuple):
        return False
    if not isinstance(masses, list | tuple) or len(masses) not in (0, STEPS):
        return False
    numbers = (*positions, length, more_targets, *masses)
    if not all(type(number) is int and 0 <= number <= _LONGEST for number in numbers):
        return False
    if not all(type(share) in (int, float) and 0 <= share <= 1 + TOLERANCE for share in left_out):
        return False
    if len(positions) != size:
        return False
    rising = all(one < two for one, two in pairwise(positions))
    gaps = len(stretches_left_out(positions))
    return rising and positions[-1] < length and len(left_out) == gaps


_LONGEST = 2**31
"""No window has as many tokens."""
_EXCERPT = ("positions", "left_out", "length", "more_targets", "masses")
_FACTS = {field.name for field in fields(Example)} - {"pattern"}
TOLERANCE = 0.05
"""How far a sum of half-precision probabilities may lie beyond 1."""


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
    if stored.ndim == 2:
        return stored
    pattern = np.zeros((size, size), stored.dtype)
    pattern[np.tril_indices(size)] = stored
    return pattern


def _check_pattern(pattern: ndarray, size: int) -> None:
    shapes = (size, size), (size * (size + 1) // 2,)
    if pattern.shape not in shapes or pattern.dtype != np.float16:
        raise ValueError(f"a pattern of shape {pattern.shape} of {pattern.dtype} for {size} tokens")
    if not ((pattern >= 0) & (pattern <= 1 + TOLERANCE)).all():
        raise ValueError("a pattern with values that are no probabilities")


def _example(facts: dict[str, Any], pattern: ndarray) -> Example:
    return Example(
        **facts
        | {
            "mass": float("nan") if facts["mass"] is None else facts["mass"],
            "tokens": tuple(facts["tokens"]),
            "targets": tuple(facts["targets"]),
            "positions": tuple(facts["positions"]),
            "left_out": tuple(facts["left_out"]),
            "masses": tuple(facts["masses"]),
            "pattern": _unfolded(pattern, len(facts["tokens"])),
        }
    )
