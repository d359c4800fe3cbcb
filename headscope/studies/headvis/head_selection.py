"""Heads of an export, and their attention on windows, tile by tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention, tiled_patterns
from headscope.runs.listing import Head

Advance = Callable[[int], None]
"""Called with the tokens of each window when they are done."""
TakeRows = Callable[[int, slice, Float[Tensor, "head query key"], int], None]
"""Called with a layer, which of the selected heads are in it, the logarithms of their attention at
some queries, and the position of the first of these."""


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


def read_rows(model: Model, window: Window, selection: HeadSelection, take: TakeRows) -> None:
    """Run a window by itself and hand on the selected heads' attention, layer by layer."""

    def on_layer(attention: LayerAttention) -> None:
        if attention.layer not in selection.by_layer:
            return
        places, numbers = selection.by_layer[attention.layer]
        first = 0
        for rows in attention.rows:
            heads = rows[0, numbers].float()
            take(attention.layer, places, heads if attention.logarithms else heads.log(), first)
            first += heads.shape[1]

    tiles = tiled_patterns(model)
    stream_attention(model, [window], tiles, on_layer, layers=selection.last + 1)
