"""Heads of an export, their attention tile by tile, and the first pass, which keeps no pattern."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention, tiled_patterns
from headscope.runs.listing import Head
from headscope.studies.headvis.row_metrics import MetricSums, row_numbers

Advance = Callable[[int], None]
"""Called with the tokens of each window when they are done."""
TakeRows = Callable[[int, int, slice, Float[Tensor, "head query key"], int], None]
"""Called with the number of a window, a layer, which of the selected heads are in it, the
logarithms of their attention at some queries, and the position of the first of these."""


@dataclass(frozen=True)
class HeadSelection:
    """Heads of a model in the order of layers."""

    heads: tuple[Head, ...]

    @cached_property
    def by_layer(self) -> dict[int, tuple[slice, list[int]]]:
        """Places of each layer's selected heads among all, and their numbers in the layer."""
        numbers: dict[int, list[int]] = {}
        for layer, head in self.heads:
            numbers.setdefault(layer, []).append(head)
        layers, start = {}, 0
        for layer, heads in numbers.items():
            layers[layer] = slice(start, start + len(heads)), heads
            start += len(heads)
        return layers

    @property
    def last(self) -> int:
        """The last of these layers."""
        return self.heads[-1][0]

    def groups(self, size: int) -> list[tuple[slice, HeadSelection]]:
        """As many heads at a time, with their places among all."""
        starts = range(0, len(self.heads), size)
        parts = [slice(start, min(start + size, len(self.heads))) for start in starts]
        return [(part, HeadSelection(self.heads[part])) for part in parts]


def read_rows(
    model: Model,
    windows: Sequence[Window],
    selection: HeadSelection,
    take: TakeRows,
    advance: Advance,
    *,
    numbers: Container[int] | None = None,
) -> None:
    """Run windows one by one and hand on the selected heads' attention, layer by layer.

    Args:
        model: the model.
        windows: all that there are.
        selection: the heads.
        take: called with each layer's attention.
        advance: told the tokens of each window when they are done.
        numbers: the numbers of the windows that are run; all when None.
    """
    tiles = tiled_patterns(model)

    def on_layer(number: int, attention: LayerAttention) -> None:
        if attention.layer not in selection.by_layer:
            return
        places, heads = selection.by_layer[attention.layer]
        first = 0
        for rows in attention.rows:
            some = rows[0, heads].float()
            logs = some if attention.logarithms else some.log()
            take(number, attention.layer, places, logs, first)
            first += some.shape[1]

    for number, window in enumerate(windows):
        if numbers is None or number in numbers:
            layers = selection.last + 1
            stream_attention(model, [window], tiles, partial(on_layer, number), layers=layers)
        advance(len(window))


@dataclass(frozen=True, eq=False)
class Scan:
    """Sums and maxima of each head."""

    sums: MetricSums
    largest: Float[ndarray, "window head"]
    """Of each window the largest attention, the first token's row and column and the diagonal left
    out."""


def scan(
    model: Model,
    windows: Sequence[Window],
    selection: HeadSelection,
    advance: Advance,
) -> Scan:
    """Read all windows once, each of three tokens or more."""
    kinds, known = np.unique(np.concatenate([w.tokens for w in windows]), return_inverse=True)
    known_of_window = np.split(known, np.cumsum([len(window) for window in windows])[:-1])
    sums = MetricSums(len(selection.heads), len(kinds))
    largest = np.zeros((len(windows), len(selection.heads)))

    def take(number: int, layer: int, places: slice, rows: Tensor, first: int) -> None:
        seen = row_numbers(rows, torch.from_numpy(windows[number].tokens).to(rows.device), first)
        sums.add(places, seen, known_of_window[number], first)
        here = largest[number, places]
        np.maximum(here, seen.largest.amax(1).double().cpu().numpy(), out=here)

    read_rows(model, windows, selection, take, advance)
    return Scan(sums, largest)
