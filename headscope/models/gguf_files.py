"""GGUF files: the shapes of their tensors, the bits of their numbers, and a cache of their weights.

transformers takes a GGUF apart byte by byte: half a minute for 98 MB, where the same weights as
safetensors take a second. They are the same numbers in single precision.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headscope.errors import ModelError, first_line
from headscope.models.packaged import cache_root

MAGIC = b"GGUF"
MAX_BYTES = 2 * 2**30
"""Bytes of the largest model that is kept, in single precision."""
MATRIX_BITS = "matrix_bits.txt"
"""The file that says how wide the matrices of the GGUF are."""


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


@contextmanager
def cached_folder(sha256: str) -> Iterator[Path | None]:
    """The folder in Hugging Face layout of the GGUF file with this checksum, if it was kept.

    One that turns out not to be whole is removed, and what is read of it is given up.
    """
    folder = _cache_path(sha256)
    if folder is None or not folder.is_dir():
        yield None
        return
    try:
        yield folder
    except ModelError:
        shutil.rmtree(folder, ignore_errors=True)


def cache_model(path: Path, sha256: str, network: Any, tokenizer: Any) -> None:
    """Write a loaded GGUF for the next time; what cannot be written is left out without a word.

    Args:
        path: of the GGUF file.
        sha256: of the file.
        network: as transformers loaded it, in any precision; kept in single precision alone.
        tokenizer: likewise.
    """
    folder = _cache_path(sha256)
    sizes = [weight.numel() * weight.element_size() for weight in network.parameters()]
    is_single = all(weight.element_size() == 4 for weight in network.parameters())
    if folder is None or not is_single or sum(sizes) > MAX_BYTES:
        return
    # transformers saves nothing that it holds for quantised, and these weights no longer are
    network.hf_quantizer = None
    if getattr(network.config, "quantization_config", None) is not None:
        del network.config.quantization_config
    with suppress(Exception):  # transformers and safetensors raise many kinds, and a load is done
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=folder.parent) as unfinished:
            network.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
            bits = gguf_matrix_bits(path)
            (Path(unfinished) / MATRIX_BITS).write_text(f"{bits}\n", encoding="ascii")
            Path(unfinished).rename(folder)  # fails if another process was faster


def matrix_bits(path: Path, sha256: str) -> int:
    """Bits of the widest number of a GGUF's matrices, read where its weights were kept.

    Args:
        path: of the file, whose header takes seconds to read.
        sha256: of the file.
    """
    folder = _cache_path(sha256)
    with suppress(OSError, ValueError):
        if folder is not None:
            return int((folder / MATRIX_BITS).read_text(encoding="ascii"))
    return gguf_matrix_bits(path)


def _cache_path(sha256: str) -> Path | None:
    root = cache_root()
    # another version of the reader may give other numbers
    reader = f"{version('transformers')}-{version('gguf')}"
    return None if root is None else root / "unpacked" / f"{sha256[:32]}-{reader}"


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
