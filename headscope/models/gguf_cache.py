"""GGUF files unpacked: the weights of one as safetensors in a cache folder, for the next time.

transformers reads a GGUF's header three times, and takes it apart byte by byte: 16 s for 98 MB,
where the same weights in its own layout take 1 s. They are the same numbers in single precision.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from headscope.errors import ModelError
from headscope.models.gguf_files import gguf_matrix_bits
from headscope.models.packaged import cache_root, unfinished_folder
from headscope.models.weights import quiet_logging

MAX_BYTES = 2 * 2**30
"""Bytes of the largest model that is kept, in single precision."""
SPARE = 4
"""Times as much room must be free on the disk."""
MATRIX_BITS = "matrix_bits.txt"
"""The file that says how wide the matrices of the GGUF are."""
CACHE_BYTES = 4 * 2**30
"""Bytes that are kept of all models; the one that was used longest ago goes first."""


def cache_folder() -> Path | None:
    """Folder of unpacked models; None where nothing is kept."""
    root = cache_root()
    return None if root is None else root / "unpacked"


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
    else:
        with suppress(OSError):
            os.utime(folder)


def cache_model(path: Path, sha256: str, network: Any, tokenizer: Any) -> None:
    """Write a loaded GGUF for the next time; what cannot be written is left out without a word.

    Args:
        path: of the GGUF file.
        sha256: of the file.
        network: as transformers loaded it, in any precision; kept in single precision alone.
        tokenizer: likewise.
    """
    folder = _cache_path(sha256)
    size = sum(4 * weight.numel() for weight in network.parameters())
    single = all(weight.dtype == torch.float32 for weight in network.parameters())
    if folder is None or not single or size > MAX_BYTES:
        return
    with suppress(Exception):  # transformers and safetensors raise many kinds, and a load is done
        folder.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder.parent).free < SPARE * size:
            return
        with unfinished_folder(folder.parent) as unfinished:
            _save(network, tokenizer, unfinished)
            bits = gguf_matrix_bits(path)
            (unfinished / MATRIX_BITS).write_text(f"{bits}\n", encoding="ascii")
            unfinished.rename(folder)  # fails where another process was faster
        _remove_oldest(folder.parent)


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


def _save(network: Any, tokenizer: Any, folder: Path) -> None:
    # transformers saves nothing that it holds for quantised, and these weights no longer are
    network.hf_quantizer = None
    if getattr(network.config, "quantization_config", None) is not None:
        del network.config.quantization_config
    with quiet_logging():
        network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _cache_path(sha256: str) -> Path | None:
    folder = cache_folder()
    # another version of the reader may give other numbers
    reader = f"{version('transformers')}-{version('gguf')}"
    return None if folder is None else folder / f"{sha256[:32]}-{reader}"


def _remove_oldest(folder: Path) -> None:
    """Remove what there is no room for."""
    free_bytes = CACHE_BYTES
    for cached in sorted(folder.glob("[!.]*"), key=lambda path: -path.stat().st_mtime):
        free_bytes -= sum(file.stat().st_size for file in cached.iterdir())
        if free_bytes < 0:
            shutil.rmtree(cached, ignore_errors=True)
