"""The heads' mean patterns in a run folder, `patterns/mean.safetensors`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from safetensors.numpy import load_file, save_file

from headscope.errors import RunError
from headscope.measure.tally import SIDE
from headscope.runs.folder import MEANS, readable
from headscope.runs.pattern_cache import TOLERANCE, UNREADABLE
from headscope.runs.write import write_file

_NAME = "mean"


def write_means(means: Float[ndarray, "layer head query key"], run_folder: Path) -> None:
    """Write them in half precision."""
    small = {_NAME: np.ascontiguousarray(means, np.float16)}
    write_file(run_folder / MEANS, lambda path: save_file(small, path))


def read_means(
    run_folder: Path, heads: tuple[int, int]
) -> Float[ndarray, "layer head query key"] | None:
    """The mean patterns of a run; None where none were kept.

    Args:
        run_folder: of the run.
        heads: its layers, and the heads of each.

    Raises:
        RunError: the file is not what was written, no regular file, or lies elsewhere.
    """
    if not os.path.lexists(run_folder / MEANS):
        return None
    path = readable(run_folder, MEANS)
    try:
        means = load_file(path)[_NAME]
    except UNREADABLE as error:
        raise RunError(f"{path}: the mean patterns are damaged: {error!s:.200}") from error
    if means.shape != (*heads, SIDE, SIDE) or means.dtype != np.float16:
        raise RunError(
            f"{path}: mean patterns of shape {means.shape} of {means.dtype}, expected "
            f"{(*heads, SIDE, SIDE)} of float16"
        )
    if not ((means >= 0) & (means <= 1 + TOLERANCE)).all():
        raise RunError(f"{path}: mean patterns with values that are no probabilities")
    return means
