"""GGUF files: the shapes of their tensors, and the bits of their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headscope.errors import ModelError, first_line

MAGIC = b"GGUF"


def gguf_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes that a GGUF file states, in elements, however they are quantised.

    Raises:
        ModelError: it is not a whole GGUF file.
    """
    return {tensor.name: tuple(map(int, tensor.shape)) for tensor in _reader(path).tensors}


def gguf_matrix_bits(path: Path) -> int:
    """Bits of the widest number of a file's matrices, rounded up.

    A quantised number counts with its share of its block's scales.
    """
    import gguf

    bits = 0
    for tensor in _reader(path).tensors:
        if len(tensor.shape) > 1:
            numbers, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
            bits = max(bits, -(-8 * size // numbers))
    return bits


def check_magic(path: Path) -> None:
    """Refuse a file that does not begin as GGUF files do.

    Raises:
        ModelError: it does not.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    if start != MAGIC:
        raise ModelError(f"{path}: not a GGUF file: it begins with {start!r}, not with {MAGIC!r}")


def _reader(path: Path) -> Any:
    # its import takes a tenth of a second, which the command line's checks do not need
    import gguf

    check_magic(path)
    try:
        return gguf.GGUFReader(path)
    except Exception as error:  # gguf raises many kinds for a file that it cannot read
        raise ModelError(
            f"{path}: not a whole GGUF file ({first_line(error)}); download or convert it again"
        ) from error
