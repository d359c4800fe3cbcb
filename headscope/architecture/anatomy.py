"""`anatomy`: what a model is made of, by its configuration and by its tensors."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd

from headscope.architecture.cache_size import cache_sizes
from headscope.architecture.compare import compare, remarks
from headscope.architecture.count import count
from headscope.architecture.dimensions import Dimensions
from headscope.architecture.rows import CacheSize, Check, Parameters
from headscope.architecture.source import Source, find_source
from headscope.errors import ModelError

CONTEXT = 4096
"""Tokens to reckon a cache for where the configuration sets no limit."""


@dataclass(frozen=True)
class Anatomy:
    """A model's dimensions, parameters and key/value cache, and the checks if asked for."""

    model: str
    counted_from: str
    dimensions: Dimensions
    parameter_rows: tuple[Parameters, ...]
    cache_rows: tuple[CacheSize, ...]
    context: int
    batch: int
    dtype: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    @property
    def parameters(self) -> pd.DataFrame:
        """A row per part: its formula, its size by formula, as counted, and whether they agree."""
        rows = [asdict(row) | {"agrees": row.agrees} for row in self.parameter_rows]
        types = {"by_formula": "Int64", "counted": "Int64", "agrees": "boolean"}
        return pd.DataFrame(rows).astype(types)

    @property
    def cache(self) -> pd.DataFrame:
        """A row per number of key/value heads: full, own, single; in bytes."""
        return pd.DataFrame([asdict(row) for row in self.cache_rows])

    @property
    def agrees(self) -> bool:
        """Formula and count are equal wherever both are known."""
        return all(row.agrees is not False for row in self.parameter_rows)

    @property
    def holds(self) -> bool:
        """Every check that was made holds."""
        return all(check.holds for check in self.checks)


def anatomy(
    model: str,
    *,
    context: int | None = None,
    batch: int = 1,
    dtype: str = "float16",
    check: bool = False,
) -> Anatomy:
    """Count a model's parameters, by formula and from its tensors, and its key/value cache.

    Nothing is loaded, unless `check` asks for it.

    Args:
        model: `mini`, a folder in Hugging Face layout (without weights, transformers builds an
            empty model), a `config.json`, a `.gguf` file, a hub name, or a published shape such
            as `gpt-2-s`.
        context: tokens in the cache; the longest input of the model when None.
        batch: sequences in the cache.
        dtype: `float16`, `bfloat16` or `float32`, of keys and values in the cache.
        check: also load the model, in float32, and check what its layers compute.

    Raises:
        ModelError: the model cannot be found or read, or has no weights to check.
        HeadscopeError: a context or batch below 1.
        ChoiceError: no such dtype.
    """
    source = find_source(model, weights=check)
    dimensions = source.dimensions
    tokens = context if context is not None else dimensions.context or CONTEXT
    caches = cache_sizes(dimensions, context=tokens, batch=batch, dtype=dtype)
    counts = count(source.shapes, dimensions)
    rows = compare(dimensions, counts)
    notes = [*remarks(dimensions, counts, source.model_type), *_cache_remarks(source, tokens)]
    checks = _checks(model, source, rows, notes) if check else ()
    return Anatomy(
        model, source.counted_from, dimensions, rows, caches, tokens, batch, dtype, checks,
        tuple(notes),
    )  # fmt: skip


def _cache_remarks(source: Source, tokens: int) -> list[str]:
    longest, window = source.dimensions.context, source.sliding_window
    found = []
    if longest is not None and tokens > longest:
        found.append(f"{tokens:,} tokens are more than the model's own limit of {longest:,}")
    if window is not None and tokens > window:
        found.append(
            f"layers with a sliding window keep {window:,} tokens only; "
            "the cache is reckoned as if none had one"
        )
    return found


def _checks(
    model: str, source: Source, rows: tuple[Parameters, ...], notes: list[str]
) -> tuple[Check, ...]:
    if not source.has_weights:
        raise ModelError(
            f"{model}: a check runs the model, and there are no weights here; give mini, a folder "
            "with .safetensors, or a .gguf file"
        )
    from headscope.architecture.checks import check_layers, check_reference
    from headscope.models import load_model

    apart = [
        abs(row.counted - row.by_formula)
        for row in rows
        if row.counted is not None and row.by_formula is not None
    ]
    by_count = Check("parameters as counted = by formula", None, float(max(apart, default=0)), 0.0)
    checks = [by_count, *check_layers(load_model(model, engine="lens"))]
    try:
        checks += check_reference(load_model(model))
    except ModelError as error:
        notes.append(f"not recomputed by hand: {error}")
    return tuple(checks)
