"""Which heads are written, and each window's attention of theirs, stretch by stretch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.runs.listing import Head

TakeRows = Callable[[int, slice, Float[Tensor, "head query key"], int], None]
"""Called with a layer, which of the chosen heads are its own, the logarithms of their attention at
some queries, and the position of the first of these."""


@dataclass(frozen=True)
class Chosen:
    """Heads of a model in the order of layers."""

    heads: tuple[Head, ...]

    @cached_property
    def by_layer(self) -> dict[int, tuple[slice, list[int]]]:
        """Of each layer with such heads their places among all, and their numbers in the layer."""
        numbers: dict[int, list[int]] = {}
        for layer, head in self.heads:
            numbers.setdefault(layer, []).append(head)
        found, start = {}, 0
        for layer, own in numbers.items():
            found[layer] = slice(start, start + len(own)), own
            start += len(own)
        return found

    @property
    def last(self) -> int:
        """The last of these layers."""
        return self.heads[-1][0]

    def groups(self, size: int) -> list[tuple[slice, Chosen]]:
        """As many heads at a time, with their places among all."""
        starts = range(0, len(self.heads), size)
        parts = [slice(start, min(start + size, len(self.heads))) for start in starts]
        return [(part, Chosen(self.heads[part])) for part in parts]


@torch.inference_mode()
def read_rows(model: Model, window: Window, chosen: Chosen, take: TakeRows) -> None:
    """Run a window by itself and hand on the chosen heads' attention, layer by layer."""
    engine = model.engine
    tokens = torch.from_numpy(window.tokens)[None].to(model.device)
    tiles: Sequence[Any] = engine.layout(1, len(window))

    def on_layer(layer: int, looks: Iterable[Tensor]) -> None:
        if layer not in chosen.by_layer:
            return
        places, numbers = chosen.by_layer[layer]
        for tile, rows in zip(tiles, looks, strict=True):
            own = rows[0, numbers].float()
            take(layer, places, own if engine.logarithms else own.log(), tile.queries.start)

    engine.run(tokens, tiles, on_layer, chosen.last + 1)
