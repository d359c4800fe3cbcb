"""The modules of a network that hold its attention, and the layers around them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from headscope.errors import ModelError
from headscope.models.layout.table import LAYOUTS

_UNNUMBERED = {row.unnumbered for row in LAYOUTS if row.unnumbered}


def attention_modules(network: Any) -> list[nn.Module]:
    """The modules that hold a layer's attention, in the order of the layers."""
    modules = [m for m in network.modules() if hasattr(m, "layer_idx") and hasattr(m, "is_causal")]
    return sorted(modules, key=lambda module: module.layer_idx)


def attention_by_layer(network: Any) -> dict[int, Any]:
    """The modules that hold a layer's attention by the numbers of their layers in the model."""
    modules: list[Any] = attention_modules(network)
    return {module.layer_idx: module for module in modules}


def layers_without_softmax(network: Any, layers: int) -> tuple[int, ...]:
    """Layers of a hybrid whose tokens mix by convolutions, or by states that they update.

    Args:
        network: a model of transformers.
        layers: how many it has.

    Returns:
        The numbers of those layers that hold no softmax attention while others do.
    """
    numbers = {getattr(m, "layer_idx", None) for m in network.modules() if hasattr(m, "is_causal")}
    with_softmax = numbers & {*range(layers)}
    return tuple(sorted({*range(layers)} - with_softmax)) if with_softmax else ()


def projection_modules(network: nn.Module) -> list[nn.Module]:
    """The modules that hold Q, K, V and O: BERT keeps O in the parent of its attention."""
    parents: dict[int, nn.Module] = {}
    for module in network.modules():
        attention = getattr(module, "self", None)
        if isinstance(attention, nn.Module) and hasattr(getattr(module, "output", None), "dense"):
            parents[id(attention)] = module
    return [parents.get(id(module), module) for module in attention_modules(network)]


def projections_by_layer(network: nn.Module) -> dict[int, nn.Module]:
    """The modules of `projection_modules` by the numbers of their layers in the model."""
    holders = projection_modules(network)
    return dict(zip(attention_by_layer(network), holders, strict=True))


def layer_list(
    network: nn.Module, attention: Mapping[int, nn.Module], layers: int
) -> nn.ModuleList:
    """The list of layers: the one whose members hold the attention of their numbers.

    Args:
        network: a model of transformers.
        attention: modules by the numbers of their layers, as of `attention_by_layer`.
        layers: how many the list has, those without softmax attention too.

    Raises:
        ModelError: there is no such list.
    """
    for module in network.modules():
        if not isinstance(module, nn.ModuleList) or len(module) != layers:
            continue
        if all(inner in set(module[layer].modules()) for layer, inner in attention.items()):
            return module
    raise ModelError("no list of layers with one attention each")


def number_layers(network: nn.Module) -> None:
    """Give each attention the number of its layer where the layout does not (DistilBERT)."""
    unnumbered = [m for m in network.modules() if type(m).__name__ in _UNNUMBERED]
    for layer, module in enumerate(unnumbered):
        setattr(module, "layer_idx", layer)  # noqa: B010
