"""Attention patterns to tallies, wherever the patterns come from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.batches import Batch, Selection
from headscope.corpus.window import Window
from headscope.profile import add_profile, profile_place
from headscope.tally import BLOCKS, Tally


def deal(windows: Sequence[Window]) -> tuple[Int[ndarray, " window"], set[int]]:
    """Deal windows into blocks by position, each stimulus apart; and the windows to profile.

    Neighbouring windows, which often come from one document, share a block. The first text
    window of each pair of blocks is profiled.
    """
    blocks = np.zeros(len(windows), np.int64)
    for stimulus in {window.stimulus for window in windows}:
        rows = np.array([i for i, window in enumerate(windows) if window.stimulus == stimulus])
        blocks[rows] = np.arange(len(rows)) * BLOCKS // len(rows)
    text = [i for i, window in enumerate(windows) if window.stimulus == "text"]
    first = {profile_place(int(blocks[i])): i for i in reversed(text)}
    return blocks, set(first.values())


def add_counts(tally: Tally, selection: Selection) -> None:
    """Add what does not depend on heads: queries, chance and the simple rules' right guesses."""
    place = (selection.block, selection.relation)
    np.add.at(tally.queries, place, selection.queries)
    np.add.at(tally.chance, place, selection.chance)
    np.add.at(tally.guesses, selection.relation, selection.guesses)


@torch.inference_mode()
def add_layer(
    tally: Tally,
    batch: Batch,
    selection: Selection | None,
    layer: int,
    pattern: Float[Tensor, "window head query key"],
) -> None:
    """Add one layer's pattern on one batch."""
    if selection is not None:
        sums = selection.sums(pattern)
        # the rows of a selection are distinct, so plain indexing adds each of them once
        tally.target[selection.block, selection.relation, layer] += sums.target
        tally.control[selection.block, selection.relation, layer] += sums.control
        tally.hits[selection.block, selection.relation, layer] += sums.hits
    add_profile(tally.profile, batch, layer, pattern)
