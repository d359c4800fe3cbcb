"""The small pictures of heads: each head's mean pattern on the stimulus of its primary relation."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.measure.tally import SIDE, picture_title
from headscope.statistics.result import Result, layers_of
from headscope.stimuli.text import TEXT

_LEVELS = 255  # attention is drawn, not read off: one byte a cell


def pack_picture(pattern: Float[ndarray, "query key"]) -> str:
    """The lower triangle of a pattern, row by row, one byte a cell, in base64.

    All of it where it is an encoder's: so the page tells the two apart.
    """
    levels = np.clip(shown_cells(pattern).astype(float) * _LEVELS, 0, _LEVELS).round()
    return base64.b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")


def shown_cells(pattern: Float[ndarray, "query key"]) -> Float[ndarray, " cell"]:
    """The cells of a pattern's lower triangle, or all where some query looks ahead."""
    lower = _lower_triangle(pattern.shape)
    return pattern.ravel() if pattern[~lower].any() else pattern[lower]


@lru_cache(maxsize=64)
def _lower_triangle(shape: tuple[int, int]) -> Bool[ndarray, "query key"]:
    return np.tri(*shape, dtype=bool)


def mean_pictures(run: Result) -> dict[str, Any] | None:
    """Pictures of each head's mean pattern, and by number in `shown` what they are of.

    Square roots, so that what is faint is seen, without the first token, whose share has a bar of
    its own. None where the run kept no mean pattern.
    """
    if run.means is None and not run.pictures:
        return None
    stimuli = [TEXT.name, *dict.fromkeys(picture.stimulus for picture in run.pictures.values())]
    heads = int(run.heads["head"].max()) + 1
    cells, numbers = [], []
    for row, layer in enumerate(layers_of(run)):
        for head in range(heads):
            picture = run.pictures.get((layer, head))
            pattern = np.zeros((SIDE, SIDE)) if run.means is None else run.means[row, head]
            if picture is not None:
                pattern = picture.pattern
            inner = np.sqrt(pattern[1:, 1:].astype(float))
            cells.append(pack_picture(inner) if inner.any() else "")
            numbers.append(stimuli.index(TEXT.name if picture is None else picture.stimulus))
    stimulus_texts = [picture_title(name) for name in stimuli]
    return {"side": SIDE - 1, "cells": cells, "stimulus": numbers, "shown": stimulus_texts}
