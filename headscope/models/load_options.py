"""Options of a model's loading, as one value with its checks; which device map goes with them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch

from headscope.errors import ChoiceError, ModelError
from headscope.models.packages import check_packages

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ENGINES = ("auto", "fused", "lens")
DEVICE_MAPS = ("auto", "balanced", "sequential")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of a model's loading.

    Raises:
        ChoiceError: no such dtype or engine.
    """

    revision: str | None = None
    """Branch, tag or commit on the hub, e.g. Pythia's `step1000`."""
    device: str = "auto"
    """`cpu`, `cuda`, `mps`, …; `auto` takes a GPU when there is one."""
    dtype: str = "float32"
    """`float32`, `bfloat16` or `float16`."""
    bos: str | None = None
    """Text of the token to put before each document; the tokenizer's own when None."""
    chat: bool = False
    """Whether documents stand in the tokenizer's chat template, as a user's message."""
    engine: str = "auto"
    """`fused`, `lens`, or `auto`: fused where the model allows it."""
    device_map: str | None = None
    """`auto`, `balanced` or `sequential` spread a model that is too large for one device over all
    of them, the processor too, with accelerate; fused engine only."""
    longest: int | None = None
    """Tokens of the longest window that will be read, the whole context when None; the fused
    engine reads a model whose layers reach fewer tokens back only where its masks tell of it."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ChoiceError("dtype", self.dtype, DTYPES)
        if self.engine not in ENGINES:
            raise ChoiceError("engine", self.engine, ENGINES)

    def changed(self) -> list[str]:
        """The names of what is not as by default.

        >>> LoadOptions(device="cpu").changed()
        ['device']
        """
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


def check_device_map(options: LoadOptions) -> None:
    """Refuse a device map that is unknown or goes with no other option that is set.

    Raises:
        ChoiceError: no such device map.
        ModelError: a device or the lens engine is set too, or accelerate is missing.
    """
    if options.device_map not in DEVICE_MAPS:
        raise ChoiceError("device map", str(options.device_map), DEVICE_MAPS)
    if options.device != "auto":
        raise ModelError(f"--device-map chooses the devices; leave --device {options.device} out")
    if options.engine == "lens":
        raise ModelError("--device-map goes with the fused engine; the lens engine has one device")
    check_packages("--device-map", ["accelerate"])


def device_map_note(network: Any) -> tuple[str, ...]:
    """Note on the devices that the parts of a network lie on, where there are several."""
    devices = list(dict.fromkeys(map(str, getattr(network, "hf_device_map", {}).values())))
    if not devices:
        return ()
    names = [f"cuda:{device}" if device.isdigit() else device for device in devices]
    return (f"spread by accelerate over {', '.join(names)}",)
