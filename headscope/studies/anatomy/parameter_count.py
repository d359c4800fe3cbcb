"""`anatomy`: what a model is made of, by its configuration and by its tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Unpack

from headscope.arguments import PATH, Kind, takes
from headscope.errors import HeadscopeError, ModelError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.runs.resolve import Named
from headscope.studies.anatomy.anatomy_dimensions import cache_sizes
from headscope.studies.anatomy.anatomy_result import Anatomy, AnatomyCheck
from headscope.studies.anatomy.config_source import Source, find_source
from headscope.studies.anatomy.parameters import Parameters, parameter_rows, remarks
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
    check: bool = False,
    progress: Progress = True,
    **load_options: Unpack[Named],
) -> Anatomy:
    """Count a model's parameters, by formula and from its tensors, and its key/value cache.

    Nothing is loaded, unless `check` asks for it.

    Args:
        model: `mini`, a folder in Hugging Face layout (without weights, transformers builds an
            empty model), a `config.json`, a `.gguf` file, a hub name, or a published shape such
            as `gpt-2-s`.
        context: tokens in the cache; the longest input of the model when None.
        batch: sequences in the cache.
        dtype: of the cache: `float16`, `float32` or `bfloat16`.
        check: run the model and check what its layers compute. It is loaded in float32.
        progress: of a check: True for a bar where a person waits, False for none, or a function
            that is called with the steps done and the steps in all.
        load_options: `revision`, a branch, tag or commit on the hub, for a hub name; `device`,
            where a check runs, and where `auto`, the default, takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be found or read, or has no weights to check.
        HeadscopeError: a context or batch below 1.
        ChoiceError: no such dtype.
    """
    model = str(model)
    if (device := load_options.get("device", "auto")) != "auto" and not check:
        raise HeadscopeError(f"device is {device!r}, but only a check runs the model; ask for one")
    source = find_source(model, weights=check, revision=load_options.get("revision"))
    dimensions = source.dimensions
    tokens = context if context is not None else dimensions.context or CONTEXT
    caches = cache_sizes(dimensions, context=tokens, batch=batch, dtype=dtype)
    counts = count(source.shapes, dimensions)
    rows = parameter_rows(dimensions, counts)
    notes = [*source.notes, *remarks(dimensions, counts, source.model_type)]
    notes += _cache_remarks(source, tokens)
    checks: tuple[AnatomyCheck, ...] = ()
    if check:
        with progress_bar(progress, "checking layers", unit="steps") as bar:
            checks = _checks(model, source, rows, notes, (load_options, Steps(bar, 2).advance))
    cache_options = (tokens, batch, dtype)
    return Anatomy(
        model, source.counted_from, dimensions, rows, caches, *cache_options, checks, tuple(notes)
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


def _checks(
    model: str,
    source: Source,
    rows: tuple[Parameters, ...],
    notes: list[str],
    loading: tuple[Named, Callable[[], None]],
) -> tuple[AnatomyCheck, ...]:
    load_options, advance = loading
    if not source.has_weights:
        raise ModelError(
            f"{model}: a check runs the model, and there are no weights here; give mini, a folder "
            "with .safetensors, or a .gguf file"
        )
    from headscope.models.load import load_model
    from headscope.studies.anatomy.checks import check_layers, check_reference

    apart = [
        abs(row.counted - row.by_formula)
        for row in rows
        if row.counted is not None and row.by_formula is not None
    ]
    by_count = AnatomyCheck(
        "parameters as counted = by formula", None, float(max(apart, default=0)), 0.0
    )
    checks = [by_count, *check_layers(load_model(model, engine="lens", **load_options))]
    advance()
    try:
        checks += check_reference(load_model(model, **load_options))
    except ModelError as error:
        notes.append(f"not recomputed by hand: {error}")
    return tuple(checks)
