"""From what a user names to dimensions and tensors, without loading a weight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headscope.errors import ModelError
from headscope.models.checkpoint import CONFIG, Checkpoint, Shapes, plain_name, weight_files
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.locate import FILES, locate
from headscope.studies.anatomy.anatomy_dimensions import Dimensions, dimensions_of
from headscope.studies.anatomy.published import SHAPES, Shape, find_shape, transformers_config

EMPTY = "counted from the empty model that transformers builds"


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
    notes: tuple[str, ...] = ()
    """On tensors that a model leaves unread, or reads under another name."""


def find_source(name: str, *, weights: bool = False, revision: str | None = None) -> Source:
    """Resolve a name: a published shape, a configuration, or a model with weights.

    Args:
        name: `mini`, `smollm2`, a folder with or without weights, a `config.json`, a `.gguf` file,
            a hub name, or a published shape such as `gpt-2-s`; what lies on disk comes first.
        weights: fetch the weights of a hub model too; otherwise its configuration is enough, and
            weights are counted only if they are in the cache.
        revision: branch, tag or commit on the hub, for a hub name.

    Raises:
        ModelError: nothing is there, or it cannot be read.
    """
    shape = None if _is_there(name) else find_shape(name)
    if shape is not None and revision is None:
        return _published(shape)
    try:
        path, _ = locate(name, revision, files=FILES if weights else [CONFIG])
    except ModelError as error:
        near = get_close_matches(name.lower().split("/")[-1], [shape.key for shape in SHAPES], 1)
        if not near:
            raise
        raise ModelError(f"{error}. Or take the published shape {near[0]}") from error
    return _read(name, path)


def _is_there(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):  # no name of a file: `locate` says why
        return False


def _published(shape: Shape) -> Source:
    from transformers import AutoConfig

    fields = transformers_config(shape.dimensions)
    config = AutoConfig.for_model(**fields)
    counted_from = f"{shape.source}; {EMPTY}"
    built = _empty_shapes(shape.name, config)
    return Source(fields["model_type"], shape.dimensions, built, counted_from, False, None)


def _read(name: str, path: Path) -> Source:
    if path.is_file() and path.suffix.lower() not in (".json", ".gguf"):
        raise ModelError(
            f"{name}: a model is a folder, a config.json, a .gguf file, a hub name or a published "
            "shape, not this"
        )
    if path.is_dir() and not (path / CONFIG).is_file():
        raise ModelError(
            f"{name}: no config.json in this folder; a model in Hugging Face layout has one"
        )
    # importing torch takes seconds, which the list of published shapes does not need
    from headscope.models.quantised import quantised
    from headscope.models.weights import examine, read_config

    files = weight_files(name, path) if path.is_dir() else ()
    if path.suffix.lower() == ".gguf":
        files = (path,)
    if not files:
        config = read_config(name, path)
        return _source(
            name, config, _empty_shapes(name, config), f"no weights here: {EMPTY}", weights=False
        )
    if (
        path.is_dir()
        and (quantisation := quantised(name, config := read_config(name, path))) is not None
    ):
        counted_from = f"weights are quantised ({quantisation}) and packed: {EMPTY}"
        return _source(name, config, _empty_shapes(name, config), counted_from, weights=False)
    checkpoint = Checkpoint(path, files)
    config, notes = examine(name, checkpoint)
    shapes = {plain_name(key): shape for key, shape in checkpoint.shapes.items()}
    file_label = files[0].name if len(files) == 1 else f"{len(files)} safetensors files"
    source = _source(name, config, shapes, f"counted from {file_label}", weights=True)
    return replace(source, notes=notes)


def _source(name: str, config: Any, shapes: Shapes, counted_from: str, *, weights: bool) -> Source:
    return Source(
        model_type=config.model_type,
        dimensions=dimensions_of(name, config),
        shapes=shapes,
        counted_from=counted_from,
        has_weights=weights,
        sliding_window=min(read_dimensions(name, config).windows, default=None),
    )


def _empty_shapes(name: str, config: Any) -> Shapes:
    """The shapes that transformers builds for a configuration; no memory is taken."""
    # importing torch takes seconds, which the list of published shapes does not need
    from headscope.models.weights import empty_network

    parameters = empty_network(name, config).named_parameters()
    return {key: tuple(parameter.shape) for key, parameter in parameters}
