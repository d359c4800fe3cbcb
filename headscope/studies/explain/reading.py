"""Attention and layer inputs of some windows, layer by layer, in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.corpus.window import Window
from headscope.models.engines.engine import Engine, stream_patterns
from headscope.models.engines.fused import FusedEngine
from headscope.models.engines.modules import by_number
from headscope.models.layout import Layout
from headscope.models.matrices import projections

OnLayer = Callable[
    [int, Float[Tensor, "window head query key"], Float[Tensor, "window position d_model"] | None],
    None,
]


def padded(windows: Sequence[Window]) -> Int[Tensor, "window position"]:
    """Token ids, padded on the right with the beginning-of-text token."""
    ids = np.full((len(windows), max(map(len, windows))), windows[0].tokens[0])
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window.tokens
    return torch.from_numpy(ids)


def read_layers(engine: Engine, windows: Sequence[Window], device: str, on_layer: OnLayer) -> None:
    """Run all windows together and hand on each layer's patterns and what the layer reads.

    The input is that of the layer's attention, after its norm; None where the engine shows none.
    """
    inputs: dict[int, Tensor] = {}

    def take(layer: int, pattern: Float[Tensor, "batch head query key"]) -> None:
        on_layer(layer, pattern.cpu(), inputs.pop(layer, None))

    with ExitStack() as hooks:
        if isinstance(engine, FusedEngine):
            for layer, module in by_number(engine.network).items():
                handle = module.register_forward_pre_hook(_keep(inputs, layer), with_kwargs=True)
                hooks.callback(handle.remove)
        stream_patterns(engine, padded(windows).to(device), take)


def _keep(kept: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        kept[layer] = attention_input(given, named)

    return hook


def attention_input(given: tuple[Any, ...], named: dict[str, Any]) -> Tensor:
    """What an attention module reads, however its block hands it on."""
    found: Tensor = given[0] if given else named["hidden_states"]
    return found


def queries_and_keys(
    attention: nn.Module, stated: Layout, stream: Float[Tensor, "window position d_model"]
) -> tuple[
    Float[Tensor, "head window position width"], Float[Tensor, "head window position width"]
]:
    """Every head's queries and keys before rotation and without biases, each with a 1 at its end.

    The 1 lets a factor hold what a bias adds. Heads that share keys get them each.
    """
    to_query, to_key = projections(attention, stated)[:2]
    groups = stated.heads // stated.key_value_heads
    found = []
    for matrix, heads in ((to_query, stated.heads), (to_key, stated.key_value_heads)):
        own = matrix.reshape(heads, stated.d_head, -1).to(stream.dtype)
        vectors = torch.einsum("wpm,hdm->hwpd", stream, own).float()
        found.append(torch.cat([vectors, torch.ones_like(vectors[..., :1])], -1))
    return found[0], found[1].repeat_interleave(groups, 0)
