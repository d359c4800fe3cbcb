"""The modules of a network that hold its attention, and by which function they attend."""

from __future__ import annotations

from typing import Any

from torch import nn

from headscope.models.engines.adapters import adapt, adapted_modules, reaches, undo

__all__ = ["attend_by", "attention_layers", "by_number", "other_layers", "reaches", "with_outputs"]

EAGER = "eager"
"""transformers' name for a model's own code, which computes whole patterns."""


def attend_by(network: Any, name: str) -> None:
    """Let a network's attention be computed by a function of transformers' interface.

    Args:
        network: a model of transformers.
        name: by which the function is registered, or `eager`.
    """
    _number(network)
    if not adapted_modules(network):
        network.set_attn_implementation(name)
    elif name == EAGER:
        undo(network)
    else:
        adapt(network, name)


def attention_layers(network: Any) -> list[nn.Module]:
    """The modules that hold a layer's attention, in the order of the layers."""
    found = [m for m in network.modules() if hasattr(m, "layer_idx") and hasattr(m, "is_causal")]
    return sorted(found, key=lambda module: module.layer_idx)


def by_number(network: Any) -> dict[int, Any]:
    """The modules that hold a layer's attention by the numbers of their layers in the model."""
    modules: list[Any] = attention_layers(network)
    return {module.layer_idx: module for module in modules}


def other_layers(network: Any, layers: int) -> tuple[int, ...]:
    """Of a hybrid the layers whose tokens mix by convolutions, or by states that they update.

    Args:
        network: a model of transformers.
        layers: how many it has.

    Returns:
        The numbers of those layers that hold no softmax attention while others do.
    """
    named = {getattr(m, "layer_idx", None) for m in network.modules() if hasattr(m, "is_causal")}
    found = named & {*range(layers)}
    return tuple(sorted({*range(layers)} - found)) if found else ()


def with_outputs(network: nn.Module, layers: list[nn.Module]) -> list[nn.Module]:
    """The modules that hold Q, K, V and O: BERT keeps O beside its attention, in their parent."""
    parents: dict[int, nn.Module] = {}
    for module in network.modules():
        own = getattr(module, "self", None)
        if isinstance(own, nn.Module) and hasattr(getattr(module, "output", None), "dense"):
            parents[id(own)] = module
    return [parents.get(id(layer), layer) for layer in layers]


def _number(network: nn.Module) -> None:
    """DistilBERT does not tell its layers which of them they are."""
    own = [m for m in network.modules() if type(m).__name__ == "DistilBertSelfAttention"]
    for layer, module in enumerate(own):
        setattr(module, "layer_idx", layer)  # noqa: B010
