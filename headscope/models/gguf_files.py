"""GGUF files: the shapes of their tensors, from files whose headers say what a model needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.errors import ModelError
from headscope.models.config_values import check_values
from headscope.models.packages import optional_package

MAGIC = b"GGUF"
VERSIONS = (2, 3)
HEADER = 24
"""Bytes of the magic, the version, and the numbers of tensors and of entries."""
ARCHITECTURE, TOKENIZER = "general.architecture", "tokenizer.ggml"
NEEDED = (
    ("block_count",),
    ("context_length",),
    ("embedding_length",),
    ("feed_forward_length", "expert_feed_forward_length"),
    ("attention.head_count",),
    ("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
)
"""Entries of an architecture without which transformers would take those of another model; one of
each row."""
COUNTS = (*(row[0] for row in NEEDED[:5]), "attention.head_count_kv", "vocab_size")
_AGAIN = "download or convert it again"


def gguf_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes that a GGUF file states, in elements, however they are quantised.

    Raises:
        ModelError: it is no GGUF file, not whole, holds no tensors, or lacks an entry that a
            model is built by.
    """
    check_header(path)
    gguf = optional_package(f"{path}: a GGUF file", "gguf")
    try:
        reader = gguf.GGUFReader(path)
    except Exception as error:  # gguf raises many kinds for a file that it cannot read
        raise ModelError(f"{path}: not a whole GGUF file: {_damage(path, error)}") from error
    _check_entries(path, _entries(reader, gguf.GGUFValueType))
    return {tensor.name: tuple(int(size) for size in tensor.shape) for tensor in reader.tensors}


def gguf_matrix_bits(path: Path) -> int:
    """Bits of the widest number of the matrices of a file that could be loaded, rounded up.

    A quantised number counts with its share of its block's scales.
    """
    import gguf

    bits = 0
    for tensor in gguf.GGUFReader(path).tensors:
        if len(tensor.shape) > 1:
            numbers, size = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
            bits = max(bits, -(-8 * size // numbers))
    return bits


def check_header(path: Path) -> None:
    """Refuse what is no GGUF file by its first bytes.

    Raises:
        ModelError: it is none, or is cut off within its header.
    """
    try:
        with path.open("rb") as file:
            header = file.read(HEADER)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
    if not header:
        raise ModelError(f"{path}: not a GGUF file: it is empty; {_AGAIN}")
    if not header.startswith(MAGIC[: len(header)]):
        raise ModelError(
            f"{path}: not a GGUF file: it begins with {header[:4]!r} and not with {MAGIC!r}; "
            "name a GGUF file, or the folder of a model in Hugging Face layout"
        )
    if len(header) < HEADER:
        raise ModelError(
            f"{path}: not a whole GGUF file: it ends after {len(header)} bytes, within its "
            f"header; {_AGAIN}"
        )
    order: Any = "little" if any(header[4:6]) else "big"
    version, tensors = (int.from_bytes(header[i:j], order) for i, j in ((4, 8), (8, 16)))
    if version not in VERSIONS:
        raise ModelError(
            f"{path}: is of GGUF version {version}, and headscope reads versions "
            f"{' and '.join(map(str, VERSIONS))}; convert the model again with llama.cpp"
        )
    if not tensors:
        raise ModelError(f"{path}: holds no tensors, and so no weights; {_AGAIN}")


def _damage(path: Path, error: Exception) -> str:
    if "is not a valid GGMLQuantizationType" in str(error):
        return (
            f"it has a tensor of a quantisation that the package gguf does not know ({error}); "
            "pip install --upgrade gguf may do, or convert the model again with another one"
        )
    return f"it is damaged, or cut off after its {path.stat().st_size:,} bytes; {_AGAIN}"


def lacking_tokenizer_entry(path: Path) -> str | None:
    """The first entry of a GGUF file's tokenizer that it should have and has not.

    The file is one whose shapes could be read.
    """
    gguf = optional_package(f"{path}: a GGUF file", "gguf")
    entries = _entries(gguf.GGUFReader(path), gguf.GGUFValueType)
    spelling = "merges" if entries.get(f"{TOKENIZER}.model") == "gpt2" else "scores"
    needed = [f"{TOKENIZER}.{name}" for name in ("model", "tokens", spelling)]
    return next((name for name in needed if name not in entries), None)


def _check_architecture(path: Path, architecture: str) -> None:
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES as KNOWN

    # transformers writes some of them in another way than the files
    plain = {name.replace("_", "").replace("-", "") for name in KNOWN}
    if architecture.replace("_", "").replace("-", "") not in plain:
        raise ModelError(
            f"{path}: its layout is {architecture!r:.40}, which transformers does not read from "
            f"GGUF files; it reads {', '.join(sorted(KNOWN))}; the same model as a folder may do"
        )


def _entries(reader: Any, kinds: Any) -> dict[str, Any]:
    """The entries of a file that are single values, by their names."""
    entries: dict[str, Any] = {}
    for name, field in reader.fields.items():
        if not field.types or field.types[0] == kinds.ARRAY:
            entries[name] = None
            continue
        part = field.parts[field.data[0]]
        is_text = field.types[0] == kinds.STRING
        entries[name] = bytes(part).decode("utf-8", "replace") if is_text else part[0].item()
    return entries


def _check_entries(path: Path, entries: Mapping[str, Any]) -> None:
    """Refuse a file that lacks what a model is built by, or has a number that no model can have."""
    architecture = entries.get(ARCHITECTURE)
    if not architecture:
        raise ModelError(
            f"{path}: its metadata has no {ARCHITECTURE}, which names the layout of the model; "
            f"{_AGAIN}"
        )
    _check_architecture(path, architecture)
    architecture_entries = {
        name.removeprefix(f"{architecture}."): value
        for name, value in entries.items()
        if name.startswith(f"{architecture}.")
    }
    for names in NEEDED:
        if architecture_entries.keys().isdisjoint(names):
            raise ModelError(
                f"{path}: its metadata has no {architecture}.{names[0]}, without which the model "
                f"cannot be built; {_AGAIN}"
            )
    for name in COUNTS:
        value = architecture_entries.get(name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ModelError(
                f"{path}: its metadata gives {architecture}.{name} as {value!r:.40}; it should be "
                "a whole number of at least 1"
            )
    check_values(
        f"{path}: its metadata", {f"{architecture}.{k}": v for k, v in architecture_entries.items()}
    )
