"""A model's weight files, decided before any is opened, and what their headers state.

transformers reads `model.safetensors` if it is there, otherwise every file that
`model.safetensors.index.json` names, and nothing else; so does headscope count, check and hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from headscope.corpus.read import file_sha256
from headscope.errors import ModelError
from headscope.models.families import check_family
from headscope.models.gguf_files import check_magic, gguf_shapes
from headscope.models.packaged import local_path
from headscope.paths import exists, resolved, unusable

Shapes = Mapping[str, tuple[int, ...]]
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
"""Configuration file of an adapter (PEFT), whose weights transformers would add."""
_NEVER = (
    "headscope never loads pickles (.bin, .pt). "
    "Convert it with transformers: model.save_pretrained(folder)"
)


@dataclass(frozen=True)
class Checkpoint:
    """A folder in Hugging Face layout or a `.gguf` file, and the files that hold its weights."""

    path: Path
    files: tuple[Path, ...]
    """Weight files in order; none for a folder that holds only a configuration."""

    @property
    def is_gguf(self) -> bool:
        """The weights and the configuration are one `.gguf` file."""
        return self.path.is_file()

    def sha256(self) -> dict[str, str]:
        """Checksums by the names of the files within the folder."""
        root = self.path.parent if self.is_gguf else self.path
        return {file.relative_to(root).as_posix(): file_sha256(file) for file in self.files}

    @cached_property
    def shapes(self) -> Shapes:
        """Shapes of all tensors as the headers state them; nothing else is read.

        Raises:
            ModelError: a file is damaged, or two hold the same tensor.
        """
        return gguf_shapes(self.path) if self.is_gguf else safetensors_shapes(self.files)


def check_local_model(name: str) -> None:
    """Check the files of a model on this disk without torch; a name on the hub passes.

    Raises:
        ModelError: the files cannot be a model that headscope reads.
    """
    with suppress(RuntimeError):  # a home that nobody has: `locate` says so
        path = local_path(name)
        if path is None or not exists(path) or not (path.is_dir() or path.is_file()):
            return
        checkpoint = find_checkpoint(name, path)
        if checkpoint.is_gguf:
            check_magic(path)
            return
        check_family(name, read_entries(name, path / CONFIG))
        safetensors_shapes(checkpoint.files)


def find_checkpoint(name: str, path: Path) -> Checkpoint:
    """The files of a model that is to be loaded.

    Args:
        name: of the model, for messages.
        path: its folder, or its `.gguf` file.

    Raises:
        ModelError: it has no configuration or no weights, its index leads elsewhere, or names
            what is missing or a pickle.
    """
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"{name}: a model is a folder, a .gguf file or a hub name, not this")
        return Checkpoint(path, (path,))
    if (path / ADAPTER).is_file():
        raise ModelError(
            f"{name} contains a PEFT adapter ({ADAPTER}): merge it into its model with "
            "merge_and_unload() and pass the merged model"
        )
    check_file(name, path / CONFIG)
    if not (path / CONFIG).is_file():
        raise ModelError(
            f"{name}: no config.json in this folder; a model in Hugging Face layout has one"
        )
    files = weight_files(name, path)
    if not files:
        raise ModelError(f"{name}: no .safetensors file; {_NEVER}")
    return Checkpoint(path, files)


def weight_files(name: str, folder: Path) -> tuple[Path, ...]:
    """The safetensors files that transformers reads from a folder; none if it holds none.

    Raises:
        ModelError: an index that leads elsewhere, or names what is missing or a pickle.
    """
    for file in (WEIGHTS, INDEX):
        check_file(name, folder / file)
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS,)
    if (folder / INDEX).is_file():
        return _indexed(name, folder)
    weights = sorted(folder.glob("*.safetensors"))
    if weights:
        raise ModelError(
            f"{name}: has {weights[0].name}, but neither {WEIGHTS} nor {INDEX}, which are what "
            "transformers reads; rename the file, or save the model again"
        )
    return ()


def check_file(name: str, file: Path) -> None:
    """Refuse a broken link, a folder or a pipe where a model's folder should have a file.

    Raises:
        ModelError: it is one of these.
    """
    reason = unusable(file)
    if reason is not None:
        raise ModelError(f"{name}: {file.name} is {reason}, and should be a file")


def read_entries(name: str, file: Path) -> dict[str, Any]:
    """The entries of a model's config.json.

    Raises:
        ModelError: the file cannot be read, or is not a JSON object.
    """
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{name}: {file.name} is not JSON: {error!s:.200}") from error
    if not isinstance(entries, dict):
        raise ModelError(f"{name}: {file.name} contains {entries!r:.40}, not a JSON object")
    return entries


def safetensors_shapes(files: tuple[Path, ...]) -> Shapes:
    """The shapes that the headers of these files state.

    Raises:
        ModelError: one of them is no safetensors file, or two hold the same tensor.
    """
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with safe_open(path, framework="np") as file:
                file_shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118, this is no dict
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: not a safetensors file: {error}") from error
        duplicates = sorted(file_shapes.keys() & shapes.keys())
        if duplicates:
            raise ModelError(f"{path}: {duplicates[0]} is in another of the model's files, too")
        shapes |= file_shapes
    return shapes


def _indexed(name: str, folder: Path) -> tuple[Path, ...]:
    """The files that a folder's index names, each in the folder; nothing but the index is read."""
    index = folder / INDEX
    weight_map = _weight_map(index)
    names = sorted(set(weight_map.values()))
    for file in names:
        _check_inside(index, file)
    files = tuple(folder / file for file in names)
    for path in files:
        check_file(name, path)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelError(
            f"{name}: {len(missing)} of {len(files)} weight files are missing, {missing[0]} first; "
            "to count by the configuration alone, name config.json itself"
        )
    return files


def _weight_map(index: Path) -> dict[str, str]:
    try:
        content: Any = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{index}: not an index of safetensors files: {error}") from error
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(file, str) for file in weight_map.values())
        or not isinstance(content.get("metadata"), dict)
    ):
        raise ModelError(
            f"{index}: not an index of safetensors files: it should hold metadata, and a "
            "weight_map from the name of each tensor to a file"
        )
    return weight_map


def _check_inside(index: Path, file: str) -> None:
    """Refuse a file of an index that is no safetensors file within the index's folder."""
    if not file.endswith(".safetensors"):
        raise ModelError(f"{index}: names {file!r:.100}, which is no .safetensors file; {_NEVER}")
    parts = PurePosixPath(file.replace("\\", "/"))
    root = resolved(index.parent)
    # the hub's cache keeps a revision as links to the blobs beside it
    blobs = root.parents[1] / "blobs" if root.parent.name == "snapshots" else root
    try:
        target = resolved(index.parent / file)
    except OSError as error:
        raise ModelError(f"{index}: names {file!r:.100}, which cannot be read: {error}") from error
    inside = target.is_relative_to(root) or target.is_relative_to(blobs)
    if parts.is_absolute() or ".." in parts.parts or ":" in file or not inside:
        raise ModelError(
            f"{index}: names {file!r:.100}, which is not in the model's folder; a model's weights "
            "lie beside its config.json"
        )
