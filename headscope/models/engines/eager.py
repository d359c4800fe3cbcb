"""The `eager` engine: the attention weights that a model's own code computes.

It needs no layout: modules whose output holds a layer's weights are found on a short text. The
patterns of one layer are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.engines.engine import (
    OnLayer,
    Request,
    StoppedError,
    Tile,
    full_tile,
    model_inputs,
    slice_pattern,
)
from headscope.models.engines.fused import EAGER, attend_by
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import projection_holder, projections

SUM_SLACK = 1e-2
"""Largest excess of a row's sum over 1 by which a tensor still counts as attention."""


@dataclass(frozen=True, eq=False)
class WeightsSource:
    """Modules whose outputs hold attention weights, and how to get them to return these."""

    modules: tuple[nn.Module, ...]
    """The module of each layer with attention, in the order of the calls; one that layers share
    comes several times."""
    options: dict[str, Any]
    """Options of the forward pass."""


class EagerEngine:
    """Any network of transformers whose own code computes attention weights as tensors."""

    name = EAGER
    logarithms = False
    sinks = False

    def __init__(
        self, network: Any, dimensions: AttentionDimensions, tokens: Int[Tensor, "one position"]
    ) -> None:
        attend_by(network, EAGER)
        self.network = network
        self.dimensions = dimensions
        self.attention_layers = dimensions.attention_layers
        self.attention_kind = dimensions.attention_kind
        self._source = find_weights(network, dimensions, tokens)

    def layout(self, windows: int, length: int) -> list[Tile]:
        """One tile: the pattern is there as a whole."""
        return [full_tile(windows, length)]

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
        """Run tokens and hand on each layer's pattern; see `Engine.run`."""
        last = max(n for n in self.attention_layers if layers is None or n < layers)
        layers_to_come = iter(self.dimensions.attention_layers)
        shape = (len(tokens), self.dimensions.heads, tokens.shape[1])

        def take(module: nn.Module, inputs: Any, output: Any) -> Any:
            pattern = next(patterns_in(output, shape), None)
            if pattern is None:  # a module may be called for something else too
                return output
            layer = next(layers_to_come, None)
            if layer in self.attention_layers:
                on_layer(layer, (slice_pattern(pattern, request) for request in requests))
            if layer == last and not on:
                raise StoppedError
            if not isinstance(output, tuple):
                return output  # what the module's caller multiplies by the values
            # the pattern is left out, as some models collect what their modules return, and the
            # patterns of all layers would stay in memory
            items = [None if item is pattern else item for item in output]
            return output._make(items) if hasattr(output, "_make") else tuple(items)

        # without a mask all tokens are read
        inputs = model_inputs(self.dimensions, tokens)
        if "attention_mask" in inputs:
            # some encoders derive a mask from the padding token's number if they are given none
            inputs["attention_mask"] = (tokens >= 0).long()
        with ExitStack() as hooks, suppress(StoppedError):
            for module in dict.fromkeys(self._source.modules):
                hooks.enter_context(module.register_forward_hook(take))
            self.network.base_model(**inputs, **self._source.options)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place; those that layers share come once.

        Raises:
            ModelError: no such matrices are known, so that the model has no null model.
        """
        return [matrix for each in self._holders for matrix in projections(each, self.dimensions)]

    @cached_property
    def _holders(self) -> list[nn.Module]:
        """The modules that hold Q, K, V and O."""
        names = {module: name for name, module in self.network.named_modules()}
        holders: dict[nn.Module, None] = {}
        for module in self._source.modules:
            holder = projection_holder(self.network, names[module])
            if holder is None:
                raise ModelError(
                    f"no Q, K, V and O matrices known around {type(module).__name__}, so that the "
                    "model has no null model; run without --null-model"
                )
            holders[holder] = None
        return list(holders)


@torch.inference_mode()
def find_weights(
    network: Any, dimensions: AttentionDimensions, tokens: Int[Tensor, "one position"]
) -> WeightsSource:
    """The modules whose outputs hold the attention weights of the layers, found on a short text.

    Raises:
        ModelError: some layers have none.
    """
    expected = len(dimensions.attention_layers)
    counts = []
    # with `output_attentions` some models collect the weights of all layers
    for options in ({}, {"output_attentions": True}):
        modules = _modules_with_weights(network, dimensions, tokens, options)
        if len(modules) == expected:
            return WeightsSource(tuple(modules), options)
        counts.append(len(modules))
    raise ModelError(
        f"its own code returns attention weights of {max(counts)} layers of {expected}"
    )


def _modules_with_weights(
    network: Any, dimensions: AttentionDimensions, tokens: Tensor, options: dict[str, Any]
) -> list[nn.Module]:
    """The innermost module of each attention pattern, in the order of the calls."""
    shape = (len(tokens), dimensions.heads, tokens.shape[1])
    modules: list[nn.Module] = []
    seen: dict[int, Tensor] = {}  # kept, so that no address is used again

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        for pattern in patterns_in(output, shape):
            # an outer module returns the pattern of an inner one again
            if pattern.data_ptr() in seen or not pattern.is_floating_point():
                continue
            # rows of attention are shares; those of scores and of a bias of positions are not
            sums = pattern.float().sum(-1)
            if (pattern >= 0).all() and sums.max() <= 1 + SUM_SLACK and sums.min() > 0:
                seen[pattern.data_ptr()] = pattern
                modules.append(module)

    with ExitStack() as hooks:
        for module in network.base_model.modules():
            hooks.enter_context(module.register_forward_hook(note))
        network.base_model(**model_inputs(dimensions, tokens), **options)
    return modules


def patterns_in(output: Any, shape: tuple[int, int, int]) -> Iterator[Tensor]:
    """Tensors of a module's output with the shape of attention.

    Args:
        output: a tensor, or a tuple or list with tensors.
        shape: numbers of windows, heads and tokens.
    """
    windows, heads, length = shape
    for item in output if isinstance(output, tuple | list) else [output]:
        if isinstance(item, Tensor) and item.shape == (windows, heads, length, length):
            yield item
