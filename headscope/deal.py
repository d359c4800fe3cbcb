"""Windows dealt into blocks of documents by position, without knowing how many will come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.profile import profile_place
from headscope.tally import BLOCKS, PROFILES

AT_ONCE = 2 * BLOCKS
"""Windows of text that are in memory at once."""


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some windows, each with its block."""

    windows: Sequence[Window]
    blocks: Int[ndarray, " window"]
    profiled: set[int]
    """Windows whose head profile is taken."""
    halve: bool = False
    """Whether the sums must be halved before these are added; see `Tally.halve`."""


def chunks(text: Iterable[Window], synthetic: Sequence[Window]) -> Iterator[Chunk]:
    """Windows of text as they come, then the other stimuli.

    Neighbouring windows of text, which often come from one document, share a block. When the
    blocks are full, neighbouring blocks become one and twice as many windows go into each, so
    that in the end between half and all of the blocks are used, whatever the length of the text.
    """
    windows, place, per_block = iter(text), 0, 1
    while chunk := list(islice(windows, AT_ONCE)):
        if place == 0:
            yield Chunk(chunk, *deal(chunk))
            per_block = AT_ONCE // BLOCKS
        else:
            halve = place + len(chunk) > per_block * BLOCKS
            per_block *= 1 + halve
            blocks = (place + np.arange(len(chunk))) // per_block
            yield Chunk(chunk, blocks, set(), halve)
        place += len(chunk)
    if synthetic:
        yield Chunk(synthetic, *deal(synthetic))


def deal(windows: Sequence[Window]) -> tuple[Int[ndarray, " window"], set[int]]:
    """Deal windows evenly into all blocks, each stimulus apart; and the windows to profile.

    One text window of eight is profiled, of few windows more.
    """
    blocks = np.zeros(len(windows), np.int64)
    for stimulus in {window.stimulus for window in windows}:
        rows = np.array([i for i, window in enumerate(windows) if window.stimulus == stimulus])
        blocks[rows] = np.arange(len(rows)) * BLOCKS // len(rows)
    text = [i for i, window in enumerate(windows) if window.stimulus == "text"]
    # for up to two windows a block the profiled ones lie in different stretches of blocks
    every = max(1, min(AT_ONCE // PROFILES, len(text) // 4))
    first = {profile_place(int(blocks[i])): i for i in reversed(text[::every])}
    return blocks, set(first.values())
