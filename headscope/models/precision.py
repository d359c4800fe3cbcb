"""Precision of a model: how many bits its numbers are stored in, and what a device multiplies.

Sixteen bits halve the memory and the time of a pass where the device multiplies them natively. Of a
checkpoint that holds no more than that, the wider numbers would be made up by rounding alone.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from headscope.models.gguf_files import matrix_bits

if TYPE_CHECKING:
    from headscope.models.checkpoint import Checkpoint
    from headscope.models.load import Model

WIDE, NARROW = "float32", "bfloat16"
NARROW_BITS = 16
IN_MEMORY = "a model in memory stays as it is"
_WIDE_BITS = {"F32": 32, "F64": 64}
"""Bits of numbers in safetensors files; all others have at most 16 bits, or are packed."""
_X86 = ("x86_64", "amd64")


def stored_bits(checkpoint: Checkpoint, sha256: Mapping[str, str]) -> int:
    """Bits of the widest number of a checkpoint's matrices; 16 stands for that and for less.

    Vectors, such as the weights of norms, do not count: quantised files keep them wide.

    Args:
        checkpoint: the files.
        sha256: of each of them.
    """
    if checkpoint.is_gguf:
        (checksum,) = sha256.values()
        return max(NARROW_BITS, matrix_bits(checkpoint.path, checksum))
    from safetensors import safe_open

    bits = NARROW_BITS
    for path in checkpoint.files:
        with safe_open(path, framework="np") as file:
            for key in file.keys():  # noqa: SIM118, this is no dict
                tensor = file.get_slice(key)
                if len(tensor.get_shape()) > 1:
                    bits = max(bits, _WIDE_BITS.get(tensor.get_dtype(), NARROW_BITS))
    return bits


def multiplies_natively(device: str) -> bool:
    """True where a device has instructions for products of bfloat16 matrices.

    It is what the processor itself reports to torch, so that the answer never changes on one
    machine, as a measured time would.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    backend: Any = torch.backends.mkldnn
    if kind != "cpu" or not backend.is_available():
        return False
    if platform.machine().lower() in _X86:
        return any(
            getattr(torch.cpu, name, bool)()
            for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        )
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def narrowed(model: Model) -> Model:
    """The same model with its parameters in half precision, in place.

    Its engine was compared with the model's own attention in single precision, where the two differ
    by their formulas alone. What transformers keeps wide in half precision stays so, and so do
    buffers, such as the frequencies of rotary embeddings.
    """
    engine: Any = model.engine  # the fused one, which has a network
    network = engine.network
    wide_modules: Collection[str] = getattr(network, "_keep_in_fp32_modules_strict", None) or ()
    for name, parameter in network.named_parameters():
        if not any(part in name.split(".") for part in wide_modules):
            parameter.data = parameter.data.to(torch.bfloat16)
    return replace(model, dtype=NARROW)


def reason_for_wide(model: Model) -> str:
    """The reason why a loaded model is not tried in half precision; empty where it is."""
    if model.checkpoint is None:
        return "a model that is spread over devices stays as it is"
    if model.engine.name != "fused":
        return f"the {model.engine.name} engine keeps a model as it is"
    if not multiplies_natively(model.device):
        return f"this {torch.device(model.device).type} has no instructions for bfloat16"
    bits = stored_bits(model.checkpoint, model.weights_sha256)
    return f"its weights are stored in {bits} bits" if bits > NARROW_BITS else ""
