"""A model's weight files, decided before any is opened, and what their headers state.

transformers reads `model.safetensors` if it is there, otherwise every file that
`model.safetensors.index.json` names, and nothing else; so does headscope count, check and hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headscope.corpus.read import file_sha256
from headscope.errors import ModelError, reported_as
from headscope.paths import resolved

Shapes = Mapping[str, tuple[int, ...]]
CONFIG = "config.json"
WEIGHTS_SUFFIX = ".safetensors"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
"""Configuration file of an adapter (PEFT), whose weights transformers would add."""
NARROW_BITS = 16
_WIDE_BITS = {"F32": 32, "F64": 64}
"""Bits of numbers in safetensors files; all others have at most 16 bits, or are packed."""
_HUB_FILES = "blobs"
"""Folder in the cache of the hub; a large file there has its sha256 as its name."""
_SHA256 = re.compile("[0-9a-f]{64}")
_UNREADABLE = (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError)
_NEVER = (
    "headscope never loads pickles (.bin, .pt). "
    "Convert it with transformers: model.save_pretrained(folder)"
)


@dataclass(frozen=True)
class Checkpoint:
    """A folder in Hugging Face layout or a `.gguf` file, and the files that hold its weights."""

    path: Path
    files: tuple[Path, ...]
    """Weight files in order."""

    @property
    def is_gguf(self) -> bool:
        """The weights and the configuration are one `.gguf` file."""
        return self.path.is_file()

    def sha256(self) -> dict[str, str]:
        """Checksums by the names of the files.

        Raises:
            ModelError: a file from the hub has another checksum than the hub states.
        """
        return {file.name: verified_sha256(file) for file in self.files}

    @cached_property
    def shapes(self) -> Shapes:
        """Shapes of all tensors as the headers state them; nothing else is read.

        Raises:
            ModelError: a file is missing or damaged.
        """
        if self.is_gguf:
            tensors = _gguf_tensors(self.path)
            return {tensor.name: tuple(map(int, tensor.shape)) for tensor in tensors}
        return {key: shape for key, shape, _ in _safetensors(self.files)}

    def stored_bits(self) -> int:
        """Bits of the widest number of the matrices; 16 stands for that and for less.

        Vectors, such as the weights of norms, do not count: quantised files keep them wide. A
        quantised number of a GGUF counts with its share of its block's scales.
        """
        bits = NARROW_BITS
        if self.is_gguf:
            from gguf import GGML_QUANT_SIZES

            # vectors, such as norms, are often stored wider than all matrices
            for tensor in _gguf_tensors(self.path):
                if len(tensor.shape) > 1:
                    numbers, size = GGML_QUANT_SIZES[tensor.tensor_type]
                    bits = max(bits, -(-8 * size // numbers))
            return bits
        for _, shape, dtype in _safetensors(self.files):
            if len(shape) > 1:
                bits = max(bits, _WIDE_BITS.get(dtype, NARROW_BITS))
        return bits


def find_checkpoint(name: str, path: Path) -> Checkpoint:
    """The files of a model that is to be loaded.

    Raises:
        ModelError: it has no configuration or no weights, or its index leads elsewhere, or names a
            pickle.
    """
    if path.suffix.lower() == ".gguf" and path.is_file():
        return Checkpoint(path, (path,))
    if (path / ADAPTER).is_file():
        raise ModelError(
            f"{name} contains a PEFT adapter ({ADAPTER}): merge it into its model with "
            "merge_and_unload() and pass the merged model"
        )
    config_file(name, path)
    # one file goes before those that an index names, as in transformers
    if (path / WEIGHTS).is_file():
        return Checkpoint(path, (path / WEIGHTS,))
    index = path / INDEX
    if not index.is_file():
        raise ModelError(f"{name}: neither {WEIGHTS} nor {INDEX} in this folder; {_NEVER}")
    with reported_as(ModelError, f"{index}: not an index of safetensors files", *_UNREADABLE):
        entries = json.loads(index.read_text(encoding="utf-8"))
        names = sorted(set(entries["weight_map"].values()))
        files = tuple(path / file for file in names)
    # an index comes with the model, and could name any file of this disk
    for file in files:
        if file.suffix != WEIGHTS_SUFFIX or file.parent != path:
            raise ModelError(
                f"{index}: names {file!s:.100}, not a .safetensors file in the model's "
                f"folder; {_NEVER}"
            )
    return Checkpoint(path, files)


def verified_sha256(file: Path) -> str:
    """The checksum of a file; one in the cache of the hub must have the checksum that names it.

    The hub's client compares the sizes of files that it fetches, and not always their content.

    Raises:
        ModelError: it has another one.
    """
    sha256 = file_sha256(file)
    stored = resolved(file)
    is_from_hub = stored.parent.name == _HUB_FILES and _SHA256.fullmatch(stored.name) is not None
    if is_from_hub and sha256 != stored.name:
        raise ModelError(
            f"{file.name}: the hub states the sha256 {stored.name}, and the file in the cache has "
            f"{sha256}; delete {stored}, then headscope fetches it again"
        )
    return sha256


def config_file(name: str, path: Path) -> Path:
    """The file with a model's configuration: in a folder its `config.json`, else the path itself.

    Raises:
        ModelError: the folder has none.
    """
    file = path / CONFIG if path.is_dir() else path
    if not file.is_file():
        raise ModelError(
            f"{name}: no {CONFIG} there; a model is a folder in Hugging Face layout, a .gguf file "
            "or a hub name"
        )
    return file


def pretrained_source(path: Path) -> dict[str, Any]:
    """Arguments of transformers for a folder, a configuration or a `.gguf` file on this disk.

    No code that comes with it is run, and nobody is asked whether to run it.
    """
    safe = {"local_files_only": True, "trust_remote_code": False}
    if path.suffix.lower() == ".gguf" and path.is_file():
        return {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name, **safe}
    return {"pretrained_model_name_or_path": path, **safe}


def _safetensors(files: tuple[Path, ...]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and dtype of every tensor, by the headers of the files."""
    from safetensors import SafetensorError, safe_open

    for path in files:
        with (
            reported_as(
                ModelError, f"{path}: not a whole safetensors file", SafetensorError, OSError
            ),
            safe_open(path, framework="np") as file,
        ):
            for key in file.keys():  # noqa: SIM118, this is not a dict
                tensor = file.get_slice(key)
                yield key, tuple(tensor.get_shape()), tensor.get_dtype()


def _gguf_tensors(path: Path) -> Any:
    """The tensors that the header of a GGUF file states."""
    # its import takes a tenth of a second, which the command line's checks do not need
    import gguf

    # gguf raises many kinds for a file that it cannot read
    damaged = f"{path}: not a whole GGUF file, download or convert it again"
    with reported_as(ModelError, damaged, Exception):
        return gguf.GGUFReader(path).tensors
