"""The heads' mean patterns in a run folder, `patterns/mean.safetensors`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from safetensors.numpy import load_file, save_file

from headscope.errors import RunError
from headscope.measure.example import Picture
from headscope.measure.tally import PICTURED, SIDE
from headscope.runs.folder import MEANS, readable_path
from headscope.runs.pattern_cache import TOLERANCE, UNREADABLE
from headscope.runs.write import write_file

_TEXT = "mean"
_HEADS = ".heads"
"""Behind a stimulus' name: the layers and heads whose pictures on it are kept."""

Means = Float[ndarray, "layer head query key"]
Pictures = Mapping[tuple[int, int], Picture]


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


def read_means(run_folder: Path, heads: pd.DataFrame) -> tuple[Means | None, Pictures]:
    """The mean patterns of a run on text, and heads' pictures on other stimuli.

    None and none where they were not measured.

    Args:
        run_folder: of the run.
        heads: its table of heads.

    Raises:
        RunError: the file is not what was written, no regular file, or lies elsewhere.
    """
    if not os.path.lexists(run_folder / MEANS):
        return None, {}
    path = readable_path(run_folder, MEANS)
    try:
        arrays = load_file(path)
    except UNREADABLE as error:
        raise RunError(f"{path}: the mean patterns are damaged: {error!s:.200}") from error
    known = {_TEXT, *PICTURED, *(name + _HEADS for name in PICTURED)}
    if not arrays or not arrays.keys() <= known:
        odd = next(iter(sorted(arrays.keys() - known)), "nothing")
        raise RunError(f"{path}: no mean patterns of a run: {odd!r:.100} is in it")
    means = arrays.get(_TEXT)
    if means is not None:
        shape = heads["layer"].nunique(), int(heads["head"].max()) + 1
        _check(path, means, shape)
    return means, dict(_pictures(path, arrays, heads))


def _pictures(
    path: Path, arrays: Mapping[str, ndarray], heads: pd.DataFrame
) -> Iterator[tuple[tuple[int, int], Picture]]:
    places = set(zip(heads["layer"].tolist(), heads["head"].tolist(), strict=True))
    for name in PICTURED:
        if name not in arrays and name + _HEADS not in arrays:
            continue
        patterns, index = arrays.get(name), arrays.get(name + _HEADS)
        if patterns is None or index is None or index.shape != (len(patterns), 2):
            raise RunError(f"{path}: mean patterns on {name} without the heads that they are of")
        _check(path, patterns, (len(index),))
        for (layer, head), pattern in zip(index.tolist(), patterns, strict=True):
            if (layer, head) not in places:
                raise RunError(
                    f"{path}: a mean pattern of layer {layer}, head {head}: no such head"
                )
            yield (layer, head), Picture(name, pattern)


def _check(path: Path, means: ndarray, shape: tuple[int, ...]) -> None:
    """Refuse what are no mean patterns of so many heads."""
    expected = (*shape, SIDE, SIDE)
    if means.shape != expected or means.dtype != np.float16:
        raise RunError(
            f"{path}: mean patterns of shape {means.shape} of {means.dtype}, expected {expected} "
            "of float16"
        )
    if not ((means >= 0) & (means <= 1 + TOLERANCE)).all():
        raise RunError(f"{path}: mean patterns with values that are no probabilities")
