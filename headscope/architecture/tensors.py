"""Names and shapes of a model's tensors, with nothing loaded: from file headers, or from the
empty model that transformers builds for a configuration.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headscope.errors import ModelError

Shapes = Mapping[str, tuple[int, ...]]
INDEX = "model.safetensors.index.json"


def weight_files(name: str, folder: Path) -> list[Path]:
    """The safetensors files of a folder; none for a folder that holds only a configuration.

    Raises:
        ModelError: a part that the folder's index names is missing.
    """
    index = folder / INDEX
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelError(f"{index}: not an index of safetensors files: {error}") from error
    files = sorted(folder / file for file in named)
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelError(
            f"{name}: {len(missing)} of {len(files)} weight files are missing, {missing[0]} first; "
            "to count by the configuration alone, name config.json itself"
        )
    return files


def safetensors_shapes(files: list[Path]) -> Shapes:
    """The shapes that the headers of these files state.

    Raises:
        ModelError: one of them is no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        try:
            with safe_open(path, framework="np") as file:
                for key in file.keys():  # noqa: SIM118, this is no dict
                    shapes[key] = tuple(file.get_slice(key).get_shape())
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path}: not a safetensors file: {error}") from error
    return shapes


def gguf_shapes(path: Path) -> Shapes:
    """The shapes that a GGUF file states, in elements, however they are quantised.

    Raises:
        ModelError: not a GGUF file, or the package that reads them is not installed.
    """
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ModelError(
            f"{path}: needs a package that is not installed: pip install 'headscope[gguf]'"
        ) from error
    try:
        reader = GGUFReader(path)
    except Exception as error:  # gguf raises many kinds for a file that it cannot read
        raise ModelError(f"{path}: not a GGUF file: {error}") from error
    return {each.name: tuple(int(size) for size in each.shape) for each in reader.tensors}


def empty_shapes(name: str, config: Any) -> Shapes:
    """The shapes that transformers builds for a configuration, on torch's `meta` device: no
    memory is taken and no weight is drawn.

    Raises:
        ModelError: transformers has no causal language model for it, or cannot build it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # likewise
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: transformers cannot build this model: {reason}") from error
    return {key: tuple(each.shape) for key, each in model.named_parameters()}
