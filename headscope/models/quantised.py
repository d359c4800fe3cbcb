"""Quantised weights of a folder, which are read as the numbers that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import ismethod
from typing import Any

import torch

from headscope.errors import ModelError

_FIELD = "quantization_config"


def quantisation_method(name: str, config: Any) -> str | None:
    """The method that quantised the weights of a folder, such as `gptq`; None for plain weights.

    Args:
        name: of the model, for messages.
        config: as transformers reads it.

    Raises:
        ModelError: the configuration names no method.
    """
    fields = getattr(config, _FIELD, None) or getattr(config.get_text_config(), _FIELD, None)
    if fields is None:
        return None
    if not isinstance(fields, Mapping):
        fields = fields.to_dict() if hasattr(fields, "to_dict") else {}
    method = fields.get("quant_method")
    if fields.get("load_in_4bit") or fields.get("load_in_8bit"):
        method = method or "bitsandbytes"
    if method is None:
        raise ModelError(
            f"{name}: its {_FIELD} names no quant_method; headscope reads what transformers reads, "
            "such as bitsandbytes or fp8"
        )
    return str(getattr(method, "value", method))[:40]


def check_plain_weights(name: str, network: Any) -> None:
    """Check that the weights of a network in memory are plain numbers.

    Raises:
        ModelError: they are quantised.
    """
    method = quantisation_method(name, network.config)
    integers = any(not weight.is_floating_point() for weight in network.parameters())
    # torch's dynamic quantisation packs a weight, and replaces the tensor by a method
    packed = any(ismethod(getattr(module, "weight", None)) for module in network.modules())
    if integers or packed or method not in (None, "gguf"):
        raise ModelError(
            f"{name}: its weights are quantised; pass the model before it was quantised, or what "
            "its dequantize() returns"
        )


def where_quantised(device_map: str | None) -> dict[str, Any]:
    """Devices that transformers is to put such weights on: kernels may want a GPU at once."""
    if device_map is not None:
        return {"device_map": device_map}
    return {"device_map": {"": "cuda"}} if torch.cuda.is_available() else {}
