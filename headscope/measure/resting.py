"""Resting columns: early key positions on which a whole layer's late queries put much attention.

They are found in the patterns themselves, a few late rows of every window and layer, and are left
out of every arg-max: a head that rests on an early "the" and looks at verbs else is a verb head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.tally import grained
from headscope.models.engines.engine import Look, Rows, Tile, row_sums

LATE = 16
"""Queries at the end of a window that are asked."""
SHORTEST = 4 * LATE
"""In a shorter window early and late are too near."""
MOST = 2
"""Columns of a window and layer, beside the first token."""
SHARE = 0.08
"""Of the mean attention of a layer's heads: less is no resting place."""


@dataclass(frozen=True, eq=False)
class Resting:
    """What one layer's heads do at the late queries of a batch's windows."""

    columns: Int[ndarray, "window column"]
    """Key positions of each window of the batch, −1 where there is none; an encoder's last token,
    where it closes the window, in a column of its own."""
    mass: Float[ndarray, "window head"]
    """Attention on them, summed over late queries; 0 for windows that are too short."""
    other: Float[ndarray, "window head"]
    """The mean attention on as many other keys, the first token left out, likewise."""

    def of(self, look: Look) -> Int[ndarray, "window column"]:
        """The columns of the windows that are looked at."""
        if isinstance(look, Tile):
            return self.columns[look.windows]
        return self.columns[look.window : look.window + 1]


def late_tiles(windows: Sequence[Window]) -> list[Tile]:
    """The rows to read first, those of each window's late queries; none of short windows."""
    return [
        Tile(
            slice(i, i + 1),
            slice(len(window) - LATE, len(window)),
            len(window) if window.both_ways else None,
        )
        for i, window in enumerate(windows)
        if _asked(window)
    ]


def find_resting(
    windows: Sequence[Window], rows: Iterable[tuple[Tile, Rows]], *, logarithms: bool
) -> Resting:
    """The resting columns of each window in one layer, from the rows of `late_tiles`."""
    closing = np.array([window.closing for window in windows])
    closed = int((closing >= 0).any())
    columns = np.full((len(windows), MOST + closed), -1)
    # what closes an encoder's window is a resting place too, and in no arg-max
    columns[:, MOST:] = closing[:, None][:, :closed]
    sums: dict[int, ndarray] = {}
    for tile, found in rows:
        place = tile.windows.start
        own = (found.float().exp() if logarithms else found.float())[0]
        mean = own[:, :, 1 : len(windows[place]) // 2].mean((0, 1))
        best = mean.topk(MOST)
        kept = best.indices[best.values >= SHARE] + 1
        columns[place, : len(kept)] = kept.cpu().numpy()
        on = own[:, :, kept].sum(-1)
        keys = torch.arange(tile.queries.start, tile.queries.stop, device=own.device)
        if tile.width is not None:
            keys = torch.full_like(keys, tile.width - 1)
        rest = (
            (row_sums(own) - own[..., 0] - on).clamp_min(0)
            * len(kept)
            / (keys - len(kept)).clamp_min(1)
        )
        sums[place] = grained(torch.stack([on, rest]).sum(-1).double().cpu().numpy())
    none = np.zeros_like(next(iter(sums.values()), np.zeros((2, 1))))
    mass, other = np.stack([sums.get(i, none) for i in range(len(windows))], axis=1)
    return Resting(columns, mass, other)


@contextmanager
def left_out(
    rows: Rows, columns: Int[ndarray, "window column"], *, logarithms: bool
) -> Iterator[None]:
    """Within, the first token and the resting columns are smaller than any attention.

    Then the rows are as they were.
    """
    nothing = -torch.inf if logarithms else -1.0
    kept: list[tuple[Tensor, Tensor]] = []
    for own, which in zip(rows, columns.tolist(), strict=True):
        for key in (0, *(key for key in which if 0 < key < rows.shape[-1])):
            column = own[..., key]
            kept.append((column, column.clone()))
            column.fill_(nothing)
    try:
        yield
    finally:
        for column, before in kept:
            column.copy_(before)


def late_queries(windows: Sequence[Window]) -> Int[ndarray, " window"]:
    """How many queries of each window count for resting columns."""
    return np.array([LATE if _asked(window) else 0 for window in windows], np.int64)


def _asked(window: Window) -> bool:
    """Whether it is long enough; of a target the rows of whose source are empty it is not."""
    return len(window) >= SHORTEST and not window.source
