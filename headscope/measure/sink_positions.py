"""Sink positions: early key positions on which a whole layer's late queries put much attention.

They are found in the patterns themselves, a few late rows of every window and layer, and are left
out of every arg-max: a head whose sink is an early "the" and that otherwise looks at verbs is a
verb head.
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
from headscope.models.engines.engine import PatternRegion, Rows, Tile, row_sums

LATE = 16
"""Queries at the end of a window that are asked."""
SHORTEST = 4 * LATE
"""Tokens of a window; in a shorter one early and late are too near."""
MAX_COLUMNS = 2
"""Columns of a window and layer, beside the first token."""
SHARE = 0.08
"""Least share of the mean attention of a layer's heads on a sink position."""


@dataclass(frozen=True, eq=False)
class SinkPositions:
    """Sink positions of one layer in a batch's windows, and the attention of late queries on
    them.
    """

    columns: Int[ndarray, "window column"]
    """Key positions of each window of the batch, −1 if absent; an encoder's last token,
    where it closes the window, in a column of its own."""
    mass: Float[ndarray, "window head"]
    """Attention on them, summed over late queries; 0 for windows that are too short."""
    other: Float[ndarray, "window head"]
    """The mean attention on as many other keys, the first token left out, likewise."""

    def of(self, request: PatternRegion) -> Int[ndarray, "window column"]:
        """The columns of the windows that are looked at."""
        if isinstance(request, Tile):
            return self.columns[request.windows]
        return self.columns[request.window : request.window + 1]


def late_tiles(windows: Sequence[Window]) -> list[Tile]:
    """The rows to read first, those of each window's late queries; none of short windows."""
    return [
        Tile(
            slice(i, i + 1),
            slice(len(window) - LATE, len(window)),
            len(window) if window.attention_kind.sees_future else None,
        )
        for i, window in enumerate(windows)
        if len(window) >= SHORTEST
    ]


def find_sink_positions(
    windows: Sequence[Window], rows: Iterable[tuple[Tile, Rows]], *, logarithms: bool
) -> SinkPositions:
    """The sink positions of each window in one layer, from the rows of `late_tiles`."""
    closing = np.array([window.closing for window in windows])
    closed = int((closing >= 0).any())
    begins = np.array([window.begins for window in windows])
    template = np.arange(1, begins.max(initial=1))
    columns = np.full((len(windows), MAX_COLUMNS + closed + len(template)), -1)
    # what closes an encoder's window is an attention sink too, and in no arg-max
    columns[:, MAX_COLUMNS : MAX_COLUMNS + closed] = closing[:, None][:, :closed]
    # and so is a chat template, which has a relation of its own
    columns[:, MAX_COLUMNS + closed :] = np.where(template < begins[:, None], template, -1)
    sums: dict[int, ndarray] = {}
    for tile, values in rows:
        row = tile.windows.start
        pattern = (values.float().exp() if logarithms else values.float())[0]
        mean = pattern[:, :, 1 : len(windows[row]) // 2].mean((0, 1))
        mean[: begins[row] - 1] = 0
        best = mean.topk(MAX_COLUMNS)
        columns_read = best.indices[best.values >= SHARE] + 1
        columns[row, : len(columns_read)] = columns_read.cpu().numpy()
        on = pattern[:, :, columns_read].sum(-1)
        keys = torch.arange(tile.queries.start, tile.queries.stop, device=pattern.device)
        if tile.width is not None:
            keys = torch.full_like(keys, tile.width - 1)
        elsewhere = (
            (row_sums(pattern) - pattern[..., 0] - on).clamp_min(0)
            * len(columns_read)
            / (keys - len(columns_read)).clamp_min(1)
        )
        sums[row] = grained(torch.stack([on, elsewhere]).sum(-1).double().cpu().numpy())
    none = np.zeros_like(next(iter(sums.values()), np.zeros((2, 1))))
    mass, other = np.stack([sums.get(i, none) for i in range(len(windows))], axis=1)
    return SinkPositions(columns, mass, other)


@contextmanager
def without_sinks(
    rows: Rows, columns: Int[ndarray, "window column"], *, logarithms: bool
) -> Iterator[None]:
    """Within, the first token and the sink positions are smaller than any attention.

    Then the rows are as they were.
    """
    nothing = -torch.inf if logarithms else -1.0
    saved: list[tuple[Tensor, Tensor]] = []
    for pattern, keys in zip(rows, columns.tolist(), strict=True):
        for key in (0, *(key for key in keys if 0 < key < rows.shape[-1])):
            column = pattern[..., key]
            saved.append((column, column.clone()))
            column.fill_(nothing)
    try:
        yield
    finally:
        for column, before in saved:
            column.copy_(before)


def late_queries(windows: Sequence[Window]) -> Int[ndarray, " window"]:
    """Number of queries of each window that count for sink positions."""
    return np.array([LATE if len(window) >= SHORTEST else 0 for window in windows], np.int64)
