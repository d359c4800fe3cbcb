"""What each key/value head reads beyond the keys that it would keep, in the model as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.corpus.window import Window
from headscope.measure.text_loss import Advance
from headscope.models.engines.modules import by_number
from headscope.models.matrices import output_projection
from headscope.studies.streaming.kept import Kept
from headscope.studies.streaming.masked import Both, looking_on


@dataclass(frozen=True, eq=False)
class Far:
    """Means over the queries that have keys beyond the kept ones; a row per layer that is read."""

    mass: Float[ndarray, "layer key_value"]
    """Attention beyond the kept keys, the mean over the query heads that share them, in [0, 1]."""
    change: Float[ndarray, "layer key_value"]
    """By how much of the residual stream's length its output would change: the mean over queries
    of ‖Σ_h (z_h − z'_h) W_O^h‖ ÷ ‖x‖, h the query heads of the group, z' their mixes of the kept
    values alone, and x what enters the layer; 0 for a head that would write the same."""
    seen: Int[ndarray, " layer"]
    """Keys that a query of the layer sees at most."""


@torch.inference_mode()
def far_of(
    network: Any,
    windows: Sequence[Window],
    shared: int,
    kept: Kept,
    advance: Advance = lambda _: None,
) -> Far:
    """Measure what streaming each key/value head would change at once, in no other head.

    Args:
        network: the network of a fused engine.
        windows: longer than what is kept.
        shared: key/value heads of a layer.
        kept: what a streaming head keeps.
        advance: told the tokens of each window when they are done.
    """
    layers = by_number(network)
    places = {layer: row for row, layer in enumerate(sorted(layers))}
    mass, change = np.zeros((2, len(layers), shared))
    seen = np.zeros(len(layers), int)
    queries = sum(len(window) - kept.reach for window in windows)
    streams: dict[int, Tensor] = {}

    def look(layer: int, both: Both) -> None:
        row = places[layer]
        beyond = both.far[0, :, kept.reach :].sum(-1)
        mass[row] += beyond.view(shared, -1).mean(1).double().cpu().numpy()
        apart = (both.output - both.streamed)[0, :, kept.reach :]
        written = _written(apart, output_projection(layers[layer]), shared)
        length = streams.pop(layer)[0, kept.reach :].float().norm(dim=-1)
        change[row] += (written / length).sum(-1).double().cpu().numpy()
        seen[row] = max(seen[row], both.seen)

    with _streams(network, streams), looking_on(network, kept, look):
        for window in windows:
            tokens = torch.from_numpy(window.tokens)[None].to(network.device)
            network.base_model(tokens, use_cache=False)
            advance(len(window))
    return Far(mass / queries, change / queries, seen)


def _written(
    apart: Float[Tensor, "head query d_head"], output: Any, shared: int
) -> Float[Tensor, "key_value query"]:
    """The length of what each group of heads writes of z."""
    weight = output.weight
    # GPT-2's Conv1D keeps the transpose of what a linear map keeps
    into = weight if type(output).__name__ == "Conv1D" else weight.T
    heads = rearrange(apart, "(group head) query width -> group query (head width)", group=shared)
    matrices = rearrange(into, "(group z) model -> group z model", group=shared)
    written: Tensor = heads.to(matrices.dtype) @ matrices
    length: Tensor = torch.linalg.vector_norm(written.float(), dim=-1)
    return length


@contextmanager
def _streams(network: nn.Module, streams: dict[int, Tensor]) -> Iterator[None]:
    """Within this context what enters each layer with attention is kept."""
    with ExitStack() as hooks:
        for layer, block in _blocks(network).items():
            handle = block.register_forward_pre_hook(_keep(streams, layer), with_kwargs=True)
            hooks.callback(handle.remove)
        yield


def _blocks(network: nn.Module) -> dict[int, nn.Module]:
    """The whole layer around each attention: the entry of the list of layers that it is in."""
    modules = dict(network.named_modules())
    numbers = {id(module): layer for layer, module in by_number(network).items()}
    found = {}
    for name, module in modules.items():
        if id(module) not in numbers:
            continue
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            if isinstance(modules[".".join(parts[: end - 1])], nn.ModuleList):
                found[numbers[id(module)]] = modules[".".join(parts[:end])]
                break
    return found


def _keep(streams: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        streams[layer] = given[0] if given else named["hidden_states"]

    return hook
