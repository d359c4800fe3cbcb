"""Folders whose weights are quantised: recognised by their configuration, read as their library
reads them, and turned back into plain matrices where that library can.

What the heads then compute with are the values that the quantised weights stand for, as of a GGUF.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headscope.errors import ModelError

_BITS = ("bits", "w_bit", "nbits")
_KINDS = ("bnb_4bit_quant_type", "fmt", "format", "version")
_FIELD = "quantization_config"


@dataclass(frozen=True)
class Quantised:
    """The quantisation of a folder's weights."""

    method: str
    """As transformers calls it: `bitsandbytes`, `gptq`, `awq`, …"""
    bits: int | None
    """Of one number; None where the configuration does not say."""
    kind: str = ""
    """What the method calls this sort of it, such as `nf4`; empty where there is one."""

    def __str__(self) -> str:
        bits = [] if self.bits is None else [f"{self.bits} bits"]
        return ", ".join([self.method, *bits, *([self.kind] if self.kind else [])])


def quantised(name: str, config: Any) -> Quantised | None:
    """The quantisation of the weights; None where the configuration says nothing of it.

    Args:
        name: of the model, for messages.
        config: as transformers reads it.

    Raises:
        ModelError: it says something that is no quantisation.
    """
    fields = getattr(config, _FIELD, None)
    if fields is None:
        fields = getattr(config.get_text_config(), _FIELD, None)
    if fields is None:
        return None
    if not isinstance(fields, Mapping):
        fields = fields.to_dict() if hasattr(fields, "to_dict") else {}
    four, eight = (bool(fields.get(f"load_in_{bits}bit")) for bits in (4, 8))
    method = fields.get("quant_method") or ("bitsandbytes" if four or eight else None)
    if method is None:
        raise ModelError(
            f"{name}: its {_FIELD} names no quant_method, so that nobody knows what its weights "
            "stand for; headscope reads what transformers reads, such as bitsandbytes, gptq, awq"
        )
    method = str(getattr(method, "value", method))[:40]
    bit_counts = [fields[key] for key in _BITS if isinstance(fields.get(key), int)]
    bits = 4 if four else 8 if eight or "fp8" in method else bit_counts[0] if bit_counts else None
    kinds = [fields[key] for key in _KINDS if isinstance(fields.get(key), str)]
    kind = kinds[0][:40] if kinds and not eight else ""
    return Quantised(method, bits, kind)


def where_quantised(device_map: str | None) -> dict[str, Any]:
    """Devices that transformers is to put such weights on: kernels may want a GPU at once."""
    if device_map is not None:
        return {"device_map": device_map}
    return {"device_map": {"": "cuda"}} if torch.cuda.is_available() else {}


def dequantised(
    network: Any, quantisation: Quantised, dtype: torch.dtype
) -> tuple[Any, tuple[str, ...]]:
    """The network with plain matrices where its library can give them, and a note on its weights.

    Args:
        network: as transformers loads it.
        quantisation: from `quantised`.
        dtype: of the matrices.
    """
    note = f"its weights are quantised ({quantisation})"
    as_dtype = str(dtype).removeprefix("torch.")
    if getattr(network, "hf_quantizer", None) is not None:
        try:
            network = network.dequantize(dtype=dtype)
        except NotImplementedError:
            return network, (
                f"{note} and are read as they are: what takes weight matrices, such as the twin, "
                "is not to be had",
            )
    return network.to(dtype), (f"{note} and are read as the {as_dtype} numbers they stand for",)


def note_in_memory(name: str, network: Any) -> tuple[str, ...]:
    """Note on a network that came with quantised weights; they stay as they are."""
    quantisation = quantised(name, network.config)
    return (
        ()
        if quantisation is None
        else (f"its weights are quantised ({quantisation}) and are read as they are",)
    )
