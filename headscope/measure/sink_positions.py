"""Sink positions: early key positions on which a whole layer's late queries put much attention.

They are found in the patterns themselves, a few late rows of every window and layer, and are left
out of every arg-max: a head whose sink is an early "the" and that otherwise looks at verbs is a
verb head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.engines.engine import Rows, Tile, row_sums

LATE = 16
"""Queries at the end of a window that are asked, and before each `APART` of its second half."""
APART = 256
"""Tokens between late queries of a long window."""
SHORTEST = 4 * LATE
"""Tokens of a window; in a shorter one early and late are too near."""
MAX_COLUMNS = 2
"""Columns of a window and layer, beside the first token."""
SHARE = 0.08
"""Least share of the mean attention of a layer's heads on a sink position."""


class SinkPositions(NamedTuple):
    """Sink positions of one layer in a batch's windows, and the attention of late queries on
    them.
    """

    columns: Int[Tensor, "window column"]
    """Key positions that were found in each window of the batch, −1 if absent."""
    mass: Float[Tensor, "tile head"]
    """Attention on them, summed over the late queries of each tile."""
    other: Float[Tensor, "tile head"]
    """The mean attention on as many other keys, the first token left out, likewise."""


def late_tiles(windows: Sequence[Window]) -> list[Tile]:
    """The rows to read first, those of each window's late queries; none of short windows.

    >>> window = Window("w", np.arange(1024), ("a",) * 1024)
    >>> [(tile.queries.start, tile.queries.stop) for tile in late_tiles([window])]
    [(752, 768), (1008, 1024)]
    """
    tiles = []
    for i, window in enumerate(windows):
        length = len(window)
        if length < SHORTEST:
            continue
        # from the end of the window back into its second half
        ends = range(length, length // 2 + LATE, -APART)
        keys = length if window.attention_kind.sees_future else None
        for end in sorted(ends):
            tiles.append(Tile(slice(i, i + 1), slice(end - LATE, end), keys))
    return tiles


def known_columns(windows: Sequence[Window]) -> Int[Tensor, "window column"]:
    """Positions that never count as the largest of a row, per layer, −1 if absent.

    An encoder's last token, if it closes the window, and the tokens of a chat template, which has a
    relation of its own.
    """
    closing = np.array([window.closing for window in windows])
    begins = np.array([window.begins for window in windows])
    template = np.arange(1, begins.max(initial=1))
    in_template = template < begins[:, None]
    columns = np.where(in_template, template, -1)
    if (closing >= 0).any():
        columns = np.concatenate([closing[:, None], columns], axis=1)
    return torch.from_numpy(columns)


@dataclass(frozen=True, eq=False)
class _LateRows:
    """The rows of late queries of one window."""

    tile: Tile
    pattern: Float[Tensor, "head query key"]


def find_sink_positions(
    windows: Sequence[Window], rows: Sequence[tuple[Tile, Rows]], *, logarithms: bool
) -> SinkPositions:
    """The sink positions of each window in one layer, from the rows of `late_tiles`."""
    # rows of each window, whose late queries stand in several tiles
    device = rows[0][1].device
    columns = torch.full((len(windows), MAX_COLUMNS), -1, device=device)
    by_window: dict[int, list[_LateRows]] = {}
    for tile, values in rows:
        # a tile is of one window
        row_values = values[0].float()
        pattern = row_values.exp() if logarithms else row_values
        by_window.setdefault(tile.windows.start, []).append(_LateRows(tile, pattern))
    mass = []
    other = []
    for row, parts in by_window.items():
        # keys with the largest mean attention, if they have enough of it
        window = windows[row]
        on_keys = []
        for part in parts:
            # a sink stands early: in the first half, behind the first token and a template
            early = part.pattern[:, :, 1 : len(window) // 2]
            mean = early.mean((0, 1))
            mean[: window.begins - 1] = 0
            on_keys.append(mean)
        best = torch.stack(on_keys).mean(0).topk(MAX_COLUMNS)
        is_sink = best.values >= SHARE
        sink_count = is_sink.sum()
        keys = best.indices + 1
        columns[row] = torch.where(is_sink, keys, -1)
        for part in parts:
            on_sinks = (part.pattern[:, :, keys] * is_sink).sum(-1)
            remaining = row_sums(part.pattern) - part.pattern[..., 0] - on_sinks
            # the last key that each query of the tile sees
            tile = part.tile
            last_keys = torch.arange(tile.queries.start, tile.queries.stop, device=device)
            if tile.width is not None:
                last_keys = torch.full_like(last_keys, tile.width - 1)
            other_keys = last_keys - sink_count
            # as many other keys as there are sinks get this much on average
            elsewhere = remaining.clamp_min(0) * sink_count / other_keys.clamp_min(1)
            mass.append(on_sinks.sum(-1))
            other.append(elsewhere.sum(-1))
    return SinkPositions(columns=columns, mass=torch.stack(mass), other=torch.stack(other))


@contextmanager
def without_sinks(
    rows: Rows, columns: Int[Tensor, "window column"], *, logarithms: bool
) -> Iterator[None]:
    """Within, the first token and the sink positions are smaller than any attention.

    Then the rows are as they were.
    """
    # the first token stands for an absent column, or one beyond the rows
    is_seen = columns < rows.shape[-1]
    columns = columns.where(is_seen, 0).clamp_min(0)
    columns = torch.nn.functional.pad(columns, (1, 0))
    places = columns[:, None, None].expand(*rows.shape[:-1], -1)
    before = rows.gather(-1, places)
    smallest = -torch.inf if logarithms else -1.0
    rows.scatter_(-1, places, smallest)
    try:
        yield
    finally:
        rows.scatter_(-1, places, before)
