"""The `fused` engine: the framework's own attention kernel, and rows of scores.

The kernel returns the layer's output and the log-sum-exp of every row; scores minus that are
log-probabilities, and readers take exponentials only of what each of them needs. `run` takes the
scores of each layer from the hook in `headscope.models.engines.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.models.engines.attention import NAME, attention, capturing, register
from headscope.models.engines.engine import OnLayer, Request, StoppedError, Tile, model_inputs
from headscope.models.engines.scores import Scores, log_attention
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import (
    number_layers,
    projection_modules,
    projections,
)

EAGER = "eager"
"""transformers' name for a model's own code, which computes whole patterns."""
BLOCK_CELLS = 2**20
"""Cells of a tile, all heads together, unless 16 rows have more: 4 MB stay in a cache."""
LEAST_ROWS = 16


class FusedEngine:
    """A Hugging Face model with softmax attention; of a hybrid those layers that have it."""

    name = "fused"
    logarithms = True

    def __init__(self, network: Any, dimensions: AttentionDimensions) -> None:
        self.network = network
        self.dimensions = dimensions
        self.attention_layers = dimensions.attention_layers
        self.attention_kind = dimensions.attention_kind
        self.sinks = False
        """A learned sink takes a share of some rows, so that they sum to less than 1."""
        attend_by(network, NAME)

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Tiles of at most about a million cells."""
        rows = BLOCK_CELLS // (self.dimensions.heads * length)
        width = length if self.attention_kind.sees_future else None
        # whole windows, if one or more fit into a tile
        at_once = rows // length
        if at_once:
            starts = range(0, windows, at_once)
            parts = [slice(start, min(start + at_once, windows)) for start in starts]
            return [Tile(part, slice(0, length), width) for part in parts]
        # else rows of one window after the other
        rows = max(LEAST_ROWS, rows)
        return [
            Tile(slice(w, w + 1), slice(q, min(q + rows, length)), width)
            for w in range(windows)
            for q in range(0, length, rows)
        ]

    @torch.inference_mode()
    def run(
        self,
        tokens: Int[Tensor, "window position"],
        requests: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run tokens and hand on each layer's log-probabilities; see `Engine.run`."""
        last = max(n for n in self.attention_layers if layers is None or n < layers)
        unread = set(self.attention_layers)

        def take(layer: int, scores: Scores) -> None:
            self.sinks |= scores.terms.sink is not None
            # differential attention calls twice with the same queries and keys
            if layer in unread:
                unread.remove(layer)
                on_layer(layer, (log_attention(scores, request) for request in requests))
            if layer == last and not on:
                raise StoppedError

        with capturing(self.network, take), suppress(StoppedError):
            self.network.base_model(**model_inputs(self.dimensions, tokens))

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place."""
        modules = projection_modules(self.network)
        return [matrix for m in modules for matrix in projections(m, self.dimensions)]


def attend_by(network: Any, name: str) -> None:
    """Let a network's attention be computed by `headscope` or `eager` of transformers' interface.

    GPT-Neo, which transformers wrote before that interface, is adapted: a method of its attention
    modules hands queries, keys and values to the registered function. The model's causal mask is
    left aside: texts are padded on the right alone, and a causal model never sees that.
    """
    register()
    number_layers(network)
    modules: list[Any] = [m for m in network.modules() if type(m).__name__ == "GPTNeoSelfAttention"]
    if not modules:
        network.set_attn_implementation(name)
    for layer, module in enumerate(modules):
        vars(module).pop("_attn", None)
        if name != EAGER:
            module._attn = MethodType(_attend_in_gpt_neo, module)
            # attributes of modules that use the interface
            module.layer_idx, module.is_causal = layer, True


def _attend_in_gpt_neo(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, None]:
    """GPT-Neo does not scale its scores; its local layers have masks of their own."""
    length = key.shape[-2]
    local = None
    if module.attention_type == "local" and length > module.config.window_size:
        local = module.bias[:, :, :length, :length]
    query = query.to(value.dtype)
    key = key.to(value.dtype)
    output, _ = attention(module, query, key, value, local, scaling=1.0)
    return output.transpose(1, 2), None
