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
    patterns = {}
    for number, example in enumerate(examples):
        # a causal pattern is written row after row, each up to its query
        is_before = lower_triangle(len(example.pattern))
        sees_future = example.pattern[~is_before].any()
        patterns[f"{number:05d}"] = np.ascontiguousarray(
            example.pattern if sees_future else example.pattern[is_before]
        )
    # six digits are more than half precision has, and JSON knows no NaN
    entries = []
    for example in examples:
        entry = {name: value for name, value in vars(example).items() if name != "pattern"}
        entry["mass"] = None if np.isnan(example.mass) else round(example.mass, 6)
        entry["left_out"] = [round(share, 6) for share in example.left_out]
        entries.append(entry)
    index = {"examples": entries}
    text = json.dumps(index, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return save(patterns), text + "\n"


def read_examples(patterns: bytes, index: bytes) -> list[Example]:
    """The examples of a run, from the contents of their two files.

    Raises:
        ValueError: they are not what was written; or other errors of json and safetensors.
    """
    arrays = load(patterns)
    examples = json.loads(index)["examples"]
    return [_example(entry, arrays[f"{i:05d}"]) for i, entry in enumerate(examples)]


def means_file(means: Means | None, pictures: Pictures) -> bytes:
    """The content of `patterns/mean.safetensors`, in half precision.

    Mean patterns on other stimuli than text are those of the heads that are drawn there.
    """
    arrays = {}
    if means is not None:
        arrays[_TEXT] = np.ascontiguousarray(means, np.float16)
    heads_by_stimulus: dict[str, list[tuple[int, int]]] = {}
    for head, picture in pictures.items():
        heads_by_stimulus.setdefault(picture.stimulus, []).append(head)
    for name, heads in heads_by_stimulus.items():
        patterns = [pictures[head].pattern for head in heads]
        arrays[name] = np.stack(patterns).astype(np.float16)
        arrays[name + _HEADS] = np.array(heads, np.int32)
    return save(arrays)


def read_means(content: bytes) -> tuple[Means | None, Pictures]:
    """The mean patterns of a run on text, if there are any, and heads' pictures on other stimuli.

    Raises:
        ValueError: the file is not what was written; or other errors of safetensors.
    """
    arrays = load(content)
    pictures: dict[tuple[int, int], Picture] = {}
    for name in pictured():
        if name not in arrays:
            continue
        heads = arrays[name + _HEADS].tolist()
        for (layer, head), pattern in zip(heads, arrays[name], strict=True):
            pictures[layer, head] = Picture(name, pattern)
    return arrays.get(_TEXT), pictures


def _example(entry: dict[str, Any], stored: ndarray) -> Example:
    values = dict(entry)
    for name in ("tokens", "targets", "positions", "left_out", "masses"):
        values[name] = tuple(entry[name])
    if entry["mass"] is None:
        values["mass"] = float("nan")
    # a causal pattern is stored row after row, each up to its query
    size = len(entry["tokens"])
    pattern = stored
    if stored.shape != (size, size):
        if stored.shape != (size * (size + 1) // 2,):  # before so much memory is taken
            raise ValueError(f"a pattern of {size} tokens has the shape {stored.shape}")
        pattern = np.zeros((size, size), stored.dtype)
        pattern[lower_triangle(size)] = stored
    return Example(**values, pattern=pattern)


@lru_cache(maxsize=64)
def lower_triangle(size: int) -> Bool[ndarray, "query key"]:
    """Mask of the cells of a pattern whose key is not after the query."""
    return np.tri(size, dtype=bool)
