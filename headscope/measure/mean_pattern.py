"""A head's mean pattern: attention among a few tokens of a window, averaged over windows.

Of a text these are its first tokens. A head that acts on another stimulus may only rest there, so
that of each such stimulus a mean pattern is kept too, on tokens where its relations show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.example import Picture
from headscope.measure.layer_reader import MakeReader, ReaderConfig
from headscope.measure.tally import SIDE, Profile, Tally, grained, pictured
from headscope.models.engines.engine import Entries, Tile

COPY = SIDE // 2
"""Positions that the picture of a repeat shows of its beginning, and of its second copy."""
DOCUMENTS = 8
"""First documents of each stimulus that are read: a picture describes and decides nothing."""


def mean_patterns(profile: Profile) -> Float[ndarray, "layer head query key"] | None:
    """The mean attention of each query position on each key position, in [0, 1].

    The first token's own row, which can only be 1, is 0, as are positions that no window reached.
    A row sums to 1 over the keys that are there: of an encoder to less. The size is `SIDE` each
    way. None if nothing was profiled, as without text.
    """
    if not profile.mean_queries.any():
        return None
    return _divided(profile, profile.mean, profile.mean_queries)


def _divided(
    profile: Profile, sums: Float[ndarray, "layer head pixel"], queries: Float[ndarray, " query"]
) -> Float[ndarray, "layer head query key"]:
    layers, heads = profile.entropy.shape
    patterns = sums.reshape(layers, heads, SIDE, SIDE)
    return np.asarray(patterns / np.maximum(queries, 1)[:, None])


def shown_positions(window: Window) -> Int[ndarray, " pixel"]:
    """The position of each of a picture's `SIDE` tokens in a window; −1 if absent.

    Of a repeat the beginnings of both copies, so that a head that looks from the second at the
    first shows; where the window ends with a question its beginning and its end, else its
    beginning.

    >>> window = Window("w", np.arange(61), ("a",) * 61, copy_length=30, stimulus="repeat")
    >>> shown_positions(window).tolist()[10:15]
    [10, 11, 31, 32, 33]
    """
    length = len(window)
    pixels = np.arange(SIDE)
    # the beginning of both copies, one beside the other
    if window.copy_length:
        start = pixels[:COPY]
        copy_start = 1 + window.copy_length
        second = pixels[:COPY] + copy_start
        return np.concatenate(
            [
                np.where(start <= window.copy_length, start, -1),
                np.where(second < length, second, -1),
            ]
        )
    # a question stands at the end
    if window.questions and length > SIDE:
        end = pixels[COPY:] + length - SIDE
        return np.concatenate([pixels[:COPY], end])
    return np.where(pixels < length, pixels, -1)


@dataclass(frozen=True, eq=False)
class PictureCells:
    """The cells of a window's picture, and where each of them is drawn."""

    cells: Entries
    stimulus: int
    """Place of the stimulus in `pictured()`."""
    pixels: Int[ndarray, " cell"]
    rows: Int[ndarray, " query"]
    """Rows of the picture that the window has."""


class PictureReader:
    """Sums of the pictures of a batch's windows."""

    def __init__(self, pictures: Sequence[PictureCells], config: ReaderConfig) -> None:
        self.requests = [picture.cells for picture in pictures]
        self._pictures = pictures
        self._values: list[tuple[int, PictureCells, Float[Tensor, "cell head"]]] = []
        self._logarithms = config.logarithms

    def on_rows(self, layer: int, index: int, rows: Float[Tensor, "cell head"]) -> None:
        """Keep a layer's attention on the cells of a picture."""
        shares = rows.float().exp() if self._logarithms else rows
        self._values.append((layer, self._pictures[index], shares))

    def add_to(self, tally: Tally) -> None:
        """Add the sums."""
        profile = tally.profile
        if not self._values:
            return
        # all layers come back from the device in one copy
        joined = torch.cat([shares for *_, shares in self._values])
        of_cells = grained(joined.cpu().double().numpy())
        start = 0
        for layer, picture, shares in self._values:
            values = of_cells[start : start + len(shares)]
            start += len(shares)
            mean = profile.stimulus_mean[picture.stimulus, layer]
            mean[:, picture.pixels] += values.T
            # queries are the same for all layers
            if layer == 0:
                queries = profile.stimulus_queries[picture.stimulus]
                queries[picture.rows] += 1


def picture_reader(batch: Batch, tiles: Sequence[Tile], config: ReaderConfig) -> MakeReader | None:
    """Maker of the reader of pictures of a batch's windows; of text none, as it is profiled."""
    pictures = []
    for row, window in enumerate(batch.windows):
        if window.stimulus not in pictured() or window.document >= DOCUMENTS:
            continue
        # cells that the window has, and that a query may attend to
        positions = shown_positions(window)
        in_window = positions >= 0
        cells = in_window[:, None] & in_window
        cells &= window.attention_kind.sees(positions[:, None], positions[None, :])
        cells[0] = False  # the first token has nowhere to look
        query, key = np.nonzero(cells)
        pictures.append(
            PictureCells(
                cells=Entries(row, positions[query], positions[key]),
                stimulus=pictured().index(window.stimulus),
                pixels=query * SIDE + key,
                rows=np.flatnonzero(cells.any(1)),
            )
        )
    return partial(PictureReader, pictures, config) if pictures else None


def stimulus_pictures(
    profile: Profile, numbers: Sequence[int], stimuli: Mapping[tuple[int, int], str]
) -> dict[tuple[int, int], Picture]:
    """The pictures of heads on other stimuli than text, by layer and head."""
    rows = {number: row for row, number in enumerate(numbers)}
    patterns = {}
    for i, name in enumerate(pictured()):
        queries = profile.stimulus_queries[i]
        # a run may read no window of a stimulus
        if queries.any():
            patterns[name] = _divided(profile, profile.stimulus_mean[i], queries)
    pictures = {}
    for (layer, head), name in stimuli.items():
        if name in patterns:
            pattern = patterns[name][rows[layer], head]
            pictures[layer, head] = Picture(name, pattern)
    return pictures
