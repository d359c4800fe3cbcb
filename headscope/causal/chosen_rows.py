"""Attention at chosen queries of one long window, some rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.intervention import AttentionChange
from headscope.models.engines.attention import AttentionCall, CleanKeys, Output

TILE = 16
"""Rows of each head that exist at once: 5 MB of 9 heads at 8,192 tokens."""


@dataclass(frozen=True, eq=False)
class Tile:
    """Some rows of a layer's attention."""

    layer: int
    query: Int[Tensor, " item"]
    attention: Float[Tensor, "item head key"]
    """Rows sum to 1, or to what a learned sink leaves."""
    keys: CleanKeys

    def read_by(
        self, attention: Float[Tensor, "item head key"]
    ) -> Float[Tensor, "item head width"]:
        """What heads would read with other attention: z."""
        groups = len(self.keys.value)
        by_group = attention.reshape(len(attention), groups, -1, attention.shape[-1])
        z = torch.einsum("ngcl,glv->ngcv", by_group, self.keys.value.float())
        return z.flatten(1, 2)


@dataclass(frozen=True, eq=False)
class ChosenRows(AttentionChange):
    """Hands on the attention at some queries, and leaves it as it is."""

    attention_layers: tuple[int, ...]
    queries: Int[ndarray, " query"]
    on_tile: Callable[[Tile], None]

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.attention_layers)

    def attend(self, call: AttentionCall) -> Output:
        """The layer's own output; the one window of the batch is read."""
        keys = CleanKeys.of(call, 0, call.key.shape[2])
        every = torch.from_numpy(self.queries).to(call.query.device)
        for start in range(0, len(every), TILE):
            query = every[start : start + TILE]
            attention, _ = keys.read(
                call.query[0][:, query].transpose(0, 1),
                call.key[0][:, query].transpose(0, 1),
                call.value[0][:, query].transpose(0, 1),
                query,
            )
            self.on_tile(Tile(call.layer, query, attention, keys))
        return call.output()
