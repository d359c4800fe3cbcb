"""Files of patterns in a run folder: those of examples, and the mean patterns of heads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from safetensors.numpy import load, save

from headscope.measure.example import Example, Picture
from headscope.measure.tally import pictured

_TEXT = "mean"
_HEADS = ".heads"
"""Behind a stimulus' name: the layers and heads whose pictures on it are kept."""

Means = Float[ndarray, "layer head query key"]
Pictures = Mapping[tuple[int, int], Picture]


def example_files(examples: Sequence[Example]) -> tuple[bytes, str]:
    """The contents of `patterns/examples.safetensors` (float16) and `patterns/examples.json`.

    Of a pattern that looks at no later key the rows are written up to the query alone.
    """
    patterns = save({f"{i:05d}": _folded(example.pattern) for i, example in enumerate(examples)})
    index = {"examples": [_facts(example) for example in examples]}
    text = json.dumps(index, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return patterns, text + "\n"


def read_examples(patterns: bytes, index: bytes) -> list[Example]:
    """The examples of a run, from the contents of their two files.

    Raises:
        ValueError: they are not what was written; or other errors of json and safetensors.
    """
    arrays = load(patterns)
    examples = json.loads(index)["examples"]
    return [_example(facts, arrays[f"{i:05d}"]) for i, facts in enumerate(examples)]


def means_file(means: Means | None, pictures: Pictures) -> bytes:
    """The content of `patterns/mean.safetensors`, in half precision.

    Mean patterns on other stimuli than text are those of the heads that are drawn there.
    """
    arrays = {} if means is None else {_TEXT: np.ascontiguousarray(means, np.float16)}
    for name in dict.fromkeys(picture.stimulus for picture in pictures.values()):
        patterns = {
            at: picture.pattern for at, picture in pictures.items() if picture.stimulus == name
        }
        arrays[name] = np.stack(list(patterns.values())).astype(np.float16)
        arrays[name + _HEADS] = np.array(list(patterns), np.int32)
    return save(arrays)


def read_means(content: bytes) -> tuple[Means | None, Pictures]:
    """The mean patterns of a run on text, if there are any, and heads' pictures on other stimuli.

    Raises:
        ValueError: the file is not what was written; or other errors of safetensors.
    """
    arrays = load(content)
    pictures = {
        (layer, head): Picture(name, pattern)
        for name in pictured()
        if name in arrays
        for (layer, head), pattern in zip(arrays[name + _HEADS].tolist(), arrays[name], strict=True)
    }
    return arrays.get(_TEXT), pictures


def _facts(example: Example) -> dict[str, Any]:
    facts = {name: value for name, value in vars(example).items() if name != "pattern"}
    left_out = [round(share, 6) for share in example.left_out]
    mass = None if np.isnan(example.mass) else round(example.mass, 6)
    return facts | {"mass": mass, "left_out": left_out}


def _example(facts: dict[str, Any], stored: ndarray) -> Example:
    lists = ("tokens", "targets", "positions", "left_out", "masses")
    mass = float("nan") if facts["mass"] is None else facts["mass"]
    size, pattern = len(facts["tokens"]), stored
    if stored.shape != (size, size):
        if stored.shape != (size * (size + 1) // 2,):  # before so much memory is taken
            raise ValueError(f"a pattern of {size} tokens has the shape {stored.shape}")
        pattern = np.zeros((size, size), stored.dtype)
        pattern[lower_triangle(size)] = stored
    return Example(
        **facts | {name: tuple(facts[name]) for name in lists} | {"mass": mass, "pattern": pattern}
    )


def _folded(pattern: Float[ndarray, "query key"]) -> ndarray:
    """A pattern as it is written: of a causal one the rows in turn, each up to its query.

    >>> _folded(np.array([[1, 0], [0.25, 0.75]], np.float16)).tolist()
    [1.0, 0.25, 0.75]
    """
    lower = lower_triangle(len(pattern))
    return np.ascontiguousarray(pattern if pattern[~lower].any() else pattern[lower])


@lru_cache(maxsize=64)
def lower_triangle(size: int) -> Bool[ndarray, "query key"]:
    """Mask of the cells of a pattern whose key is not after the query."""
    return np.tri(size, dtype=bool)
