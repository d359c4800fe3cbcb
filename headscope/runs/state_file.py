"""The file of a checkpoint: sums as safetensors, with facts and a checksum in its header."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from headscope.runs.write import write_file

if TYPE_CHECKING:
    from numpy import ndarray

_FACTS, _DIGEST = "headscope", "sha256"


def write_state(path: Path, facts: str, arrays: dict[str, ndarray]) -> None:
    """Write sums and what is known of them, in the place of those that were there.

    Raises:
        WriteError: the file cannot be written; what was there is whole.
        SafetensorError: the same, as safetensors says it.
    """
    metadata = {_FACTS: facts, _DIGEST: _digest(facts, arrays)}
    write_file(path, lambda new: save_file(arrays, new, metadata), overwrite=True)


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, ndarray]]:
    """Read back what `write_state` wrote.

    Raises:
        ValueError: the content is not what its own sha256 says; others of `UNREADABLE` for what is
            no such file.
    """
    with safe_open(path, "numpy") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    if metadata.get(_DIGEST) != _digest(metadata.get(_FACTS, ""), arrays):
        raise ValueError("its sha256 is not the one that it states")
    return json.loads(metadata[_FACTS]), arrays


def _digest(facts: str, arrays: dict[str, ndarray]) -> str:
    digest = hashlib.sha256(facts.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\0{name}\0{array.dtype.str}\0{arrays[name].shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
