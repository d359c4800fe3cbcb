"""Attention on the keys and values of a clean run: of later positions, single tokens, chosen rows.

What a causal model computes at a token depends on earlier tokens through their keys and values
alone. A token that is changed, or a row of attention that is read, needs no more than these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.intervention import AttentionChange, AttentionRead
from headscope.models.engines.attention import AttentionCall, CleanKeys, Output, softmax_attend
from headscope.models.engines.scores import ScoreTerms

TILE = 16
"""Rows of each head that exist at once: 5 MB of 9 heads at 8,192 tokens."""


@dataclass(frozen=True, eq=False)
class KeptPrefix(AttentionChange):
    """Later positions that attend on the keys and values of a clean run before them."""

    keys: Mapping[int, Float[Tensor, "row group position width"]]
    """Keys before the first later position, by layer."""
    values: Mapping[int, Float[Tensor, "row group position _"]]
    terms: Mapping[int, ScoreTerms]
    """Mask and bias of the later queries."""

    @classmethod
    def of(cls, calls: Mapping[int, AttentionCall], start: int) -> KeptPrefix:
        """Inputs of each layer in a clean run, before a position."""
        keys = {}
        values = {}
        terms = {}
        for layer, call in calls.items():
            # copies, so that the whole layer is not kept
            keys[layer] = call.key[:, :, :start].clone()
            values[layer] = call.value[:, :, :start].clone()
            bias = call.score_terms.bias
            if bias is None:
                hidden = torch.zeros(call.visible.shape, device=call.query.device)
                bias = hidden.masked_fill(~call.visible, -torch.inf)
            terms[layer] = call.score_terms._replace(bias=bias[:, :, start:])
        return cls(keys, values, terms)

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.keys)

    def attend(self, call: AttentionCall) -> Output:
        """The outputs of the later positions."""
        key = torch.cat([self.keys[call.layer].to(call.key), call.key], 2)
        value = torch.cat([self.values[call.layer].to(call.value), call.value], 2)
        output, _ = softmax_attend(call.query, key, value, call.scale, self.terms[call.layer])
        return output.transpose(1, 2).contiguous()


@dataclass(frozen=True, eq=False)
class TokensOnKeys(AttentionChange):
    """Single tokens, each a row of its own, that attend on the keys of a clean run before them."""

    keys: Sequence[Mapping[int, CleanKeys]]
    """Of each window or prompt, by layer."""
    window: Int[Tensor, " row"]
    """The window of each token; those of one window follow each other."""
    position: Int[Tensor, " row"]
    """Position of each token in its window."""

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.keys[0])

    def at_rows(self, numbers: Int[Tensor, " item"]) -> TokensOnKeys:
        """Some of the tokens."""
        at = numbers.to(self.window.device)
        return replace(self, window=self.window[at], position=self.position[at])

    def read(self, call: AttentionCall) -> list[tuple[Float[Tensor, "item head position"], Tensor]]:
        """Attention of the tokens of each window in turn, and what their heads read: z."""
        # tokens of one window stand together and look at the same keys
        windows, counts = torch.unique_consecutive(self.window, return_counts=True)
        rows = []
        stop = 0
        for window, count in zip(windows.tolist(), counts.tolist(), strict=True):
            start, stop = stop, stop + count
            tokens = slice(start, stop)
            attention_and_z = self.keys[window][call.layer].read(
                call.query[tokens, :, 0],
                call.key[tokens, :, 0],
                call.value[tokens, :, 0],
                self.position[tokens].to(call.query.device),
            )
            rows.append(attention_and_z)
        return rows

    def attend(self, call: AttentionCall) -> Output:
        """Outputs z of each token's heads."""
        z = torch.cat([z for _, z in self.read(call)])
        return z.to(call.value.dtype)[:, None].contiguous()


@dataclass(frozen=True, eq=False)
class AttentionTile:
    """Some rows of a layer's attention."""

    layer: int
    query: Int[Tensor, " item"]
    attention: Float[Tensor, "item head key"]
    """Rows sum to 1, or to what a learned sink leaves."""
    keys: CleanKeys

    def read_by(
        self, attention: Float[Tensor, "item head key"]
    ) -> Float[Tensor, "item head width"]:
        """The z of heads with other attention."""
        groups = len(self.keys.value)
        by_group = attention.reshape(len(attention), groups, -1, attention.shape[-1])
        z = torch.einsum("ngcl,glv->ngcv", by_group, self.keys.value.float())
        return z.flatten(1, 2)


def chosen_rows(
    layers: Collection[int],
    queries: Int[ndarray, " query"],
    on_tile: Callable[[AttentionTile], None],
) -> AttentionRead:
    """Hand on the attention at some queries of one long window, some rows at a time.

    Args:
        layers: all with attention.
        queries: positions in the window, which runs alone.
        on_tile: called with some rows of a layer.
    """

    def take(call: AttentionCall) -> None:
        keys = CleanKeys.of(call, 0, call.key.shape[2])
        every = torch.from_numpy(queries).to(call.query.device)
        for start in range(0, len(every), TILE):
            query = every[start : start + TILE]
            attention, _ = keys.read(
                call.query[0][:, query].transpose(0, 1),
                call.key[0][:, query].transpose(0, 1),
                call.value[0][:, query].transpose(0, 1),
                query,
            )
            on_tile(AttentionTile(call.layer, query, attention, keys))

    return AttentionRead(layers, take)
