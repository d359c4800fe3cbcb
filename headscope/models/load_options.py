"""Options of a model's loading, as one value with its checks."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from headscope.errors import ChoiceError

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
    engine: str = "auto"
    """`fused`, `lens`, or `auto`: fused where the model allows it."""
    device_map: str | None = None
    """`auto`, `balanced` or `sequential` spread a model that is too large for one device over all
    of them, the processor too, with accelerate; fused engine only."""
    adapter: str | None = None
    """The folder of a PEFT adapter that is merged into the weights."""
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
