"""Counts of a model's parameters, by its configuration and by its tensors; no weight is loaded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headscope.arguments import PATH, Kind, takes
from headscope.errors import ModelError
from headscope.models.checkpoint import CONFIG, Checkpoint, Shapes, plain_name, weight_files
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.locate import locate
from headscope.studies.anatomy.anatomy_dimensions import Dimensions, cache_sizes, dimensions_of
from headscope.studies.anatomy.anatomy_result import Anatomy
from headscope.studies.anatomy.parameters import parameter_rows, remarks
from headscope.studies.anatomy.published import SHAPES, Shape, find_shape, transformers_config
from headscope.studies.anatomy.tensor_counts import count

CONTEXT = 4096
"""Tokens to reckon a cache for where the configuration sets no limit."""


@takes(
    model=Kind("the name or path of a model, or of a published shape", PATH.plain),
)
def anatomy(
    model: str | Path,
    *,
    context: int | None = None,
    batch: int = 1,
    dtype: str = "float16",
    revision: str | None = None,
) -> Anatomy:
    """Count a model's parameters, by formula and from its tensors, and its key/value cache.

    No weight is loaded.

    Args:
        model: `mini`, a folder in Hugging Face layout (without weights, transformers builds an
            empty model), a `config.json`, a `.gguf` file, a hub name, or a published shape such
            as `gpt-2-s`.
        context: tokens in the cache; the longest input of the model when None.
        batch: sequences in the cache.
        dtype: of the cache: `float16`, `float32` or `bfloat16`.
        revision: branch, tag or commit on the hub, for a hub name.

    Raises:
        ModelError: the model cannot be found or read.
        HeadscopeError: a context or batch below 1.
        ChoiceError: no such dtype.
    """
    model = str(model)
    source = find_source(model, revision=revision)
    dimensions = source.dimensions
    tokens = context if context is not None else dimensions.context or CONTEXT
    caches = cache_sizes(dimensions, context=tokens, batch=batch, dtype=dtype)
    counts = count(source.shapes, dimensions)
    rows = parameter_rows(dimensions, counts)
    notes = [*source.notes, *remarks(dimensions, counts, source.model_type)]
    notes += _cache_remarks(source, tokens)
    cache_options = (tokens, batch, dtype)
    return Anatomy(
        model, source.counted_from, dimensions, rows, caches, *cache_options, tuple(notes)
    )


def _cache_remarks(source: Source, tokens: int) -> list[str]:
    longest, window = source.dimensions.context, source.sliding_window
    lines = []
    if longest is not None and tokens > longest:
        lines.append(f"{tokens:,} tokens are more than the model's own limit of {longest:,}")
    if window is not None and tokens > window:
        lines.append(
            f"layers with a sliding window keep {window:,} tokens only; "
            "the cache is reckoned as if none had one"
        )
    return lines


EMPTY = "counted from the empty model that transformers builds"


@dataclass(frozen=True)
class Source:
    """A model's stated dimensions, its tensors' shapes, and where both are from."""

    model_type: str
    dimensions: Dimensions
    shapes: Shapes
    counted_from: str
    """One line for the reader."""
    sliding_window: int | None
    """Tokens that a layer with a sliding window keeps; None where there is none."""
    notes: tuple[str, ...] = ()
    """On tensors that a model leaves unread, or reads under another name."""


def find_source(name: str, *, revision: str | None = None) -> Source:
    """Resolve a name: a published shape, a configuration, or a model with weights.

    Args:
        name: `mini`, `smollm2`, a folder with or without weights, a `config.json`, a `.gguf` file,
            a hub name, or a published shape such as `gpt-2-s`; what lies on disk comes first.
        revision: branch, tag or commit on the hub, for a hub name.

    Raises:
        ModelError: nothing is there, or it cannot be read.
    """
    shape = None if _is_there(name) else find_shape(name)
    if shape is not None and revision is None:
        return _published(shape)
    try:
        path, _ = locate(name, revision, files=[CONFIG])
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
    return Source(fields["model_type"], shape.dimensions, built, counted_from, None)


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
        return _source(name, config, _empty_shapes(name, config), f"no weights here: {EMPTY}")
    if (
        path.is_dir()
        and (quantisation := quantised(name, config := read_config(name, path))) is not None
    ):
        counted_from = f"weights are quantised ({quantisation}) and packed: {EMPTY}"
        return _source(name, config, _empty_shapes(name, config), counted_from)
    checkpoint = Checkpoint(path, files)
    config, notes = examine(name, checkpoint)
    shapes = {plain_name(key): shape for key, shape in checkpoint.shapes.items()}
    file_label = files[0].name if len(files) == 1 else f"{len(files)} safetensors files"
    source = _source(name, config, shapes, f"counted from {file_label}")
    return replace(source, notes=notes)


def _source(name: str, config: Any, shapes: Shapes, counted_from: str) -> Source:
    return Source(
        model_type=config.model_type,
        dimensions=dimensions_of(name, config),
        shapes=shapes,
        counted_from=counted_from,
        sliding_window=min(read_dimensions(name, config).windows, default=None),
    )


def _empty_shapes(name: str, config: Any) -> Shapes:
    """The shapes that transformers builds for a configuration; no memory is taken."""
    # importing torch takes seconds, which the list of published shapes does not need
    from headscope.models.weights import empty_network

    parameters = empty_network(name, config).named_parameters()
    return {key: tuple(parameter.shape) for key, parameter in parameters}
