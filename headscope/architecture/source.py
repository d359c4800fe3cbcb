"""From what a user names to dimensions and tensors, without loading a weight."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headscope.architecture.dimensions import Dimensions
from headscope.architecture.from_config import dimensions_of
from headscope.architecture.published import SHAPES, Shape, find_shape, transformers_config
from headscope.architecture.tensors import (
    Shapes,
    empty_shapes,
    gguf_shapes,
    safetensors_shapes,
    weight_files,
)
from headscope.errors import ModelError
from headscope.hub import FILES
from headscope.locate import locate

EMPTY = "counted from the empty model that transformers builds"
_CONFIG = "config.json"


@dataclass(frozen=True)
class Source:
    """A model's stated dimensions, its tensors' shapes, and where both are from."""

    model_type: str
    dimensions: Dimensions
    shapes: Shapes
    counted_from: str
    """One line for the reader."""
    has_weights: bool
    sliding_window: int | None
    """Tokens that a layer with a sliding window keeps; None where there is none."""


def find_source(name: str, *, weights: bool = False) -> Source:
    """What a name stands for: a published shape, a configuration, or a model with weights.

    Args:
        name: `mini`, a folder with or without weights, a `config.json`, a `.gguf` file, a hub
            name, or a published shape such as `gpt-2-s`; what lies on disk comes first.
        weights: fetch the weights of a hub model too; otherwise its configuration is enough, and
            weights are counted only if they are in the cache.

    Raises:
        ModelError: nothing is there, or it cannot be read.
    """
    shape = None if Path(name).expanduser().exists() else find_shape(name)
    if shape is not None:
        return _published(shape)
    try:
        path, _ = locate(name, None, files=FILES if weights else [_CONFIG])
    except ModelError as error:
        near = get_close_matches(name.lower().split("/")[-1], [shape.key for shape in SHAPES], 1)
        if not near:
            raise
        raise ModelError(f"{error}. Or take the published shape {near[0]}") from error
    return _read(name, path)


def _published(shape: Shape) -> Source:
    from transformers import AutoConfig

    fields = transformers_config(shape.dimensions)
    config = AutoConfig.for_model(**fields)
    counted_from = f"{shape.source}; {EMPTY}"
    built = empty_shapes(shape.name, config)
    return Source(fields["model_type"], shape.dimensions, built, counted_from, False, None)


def _read(name: str, path: Path) -> Source:
    if path.suffix == ".gguf" and path.is_file():
        config = _read_config(name, path.parent, gguf_file=path.name)
        return _source(name, config, gguf_shapes(path), f"counted from {path.name}", weights=True)
    if path.is_file() and path.suffix != ".json":
        raise ModelError(
            f"{name}: a model is a folder, a config.json, a .gguf file, a hub name or a published "
            "shape, not this"
        )
    if path.is_dir() and not (path / _CONFIG).is_file():
        raise ModelError(
            f"{name}: no config.json in this folder; a model in Hugging Face layout has one"
        )
    config = _read_config(name, path if path.is_file() else path / _CONFIG)
    files = weight_files(name, path) if path.is_dir() else []
    if not files:
        return _source(
            name, config, empty_shapes(name, config), f"no weights here: {EMPTY}", weights=False
        )
    named = files[0].name if len(files) == 1 else f"{len(files)} safetensors files"
    return _source(
        name, config, safetensors_shapes(files), f"counted from {named}", weights=True
    )  # fmt: skip


def _source(name: str, config: Any, shapes: Shapes, counted_from: str, *, weights: bool) -> Source:
    return Source(
        model_type=config.model_type,
        dimensions=dimensions_of(name, config),
        shapes=shapes,
        counted_from=counted_from,
        has_weights=weights,
        sliding_window=getattr(config, "sliding_window", None),
    )


def _read_config(name: str, path: Path, **gguf: str) -> Any:
    from transformers import AutoConfig

    try:
        if not gguf:
            json.loads(path.read_text(encoding="utf-8"))  # a plain message where it is damaged
        with redirect_stderr(io.StringIO()):  # the GGUF reader draws a bar
            return AutoConfig.from_pretrained(
                path, local_files_only=True, trust_remote_code=False, **gguf
            )
    except Exception as error:  # transformers raises many kinds for what it cannot read
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: transformers cannot read its configuration: {reason}") from error
