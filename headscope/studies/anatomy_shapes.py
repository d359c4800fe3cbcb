"""Shapes of well-known models: layers, heads, width of a head, and size of the key/value cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pandas as pd
from pydantic import Field

from headscope.options import Positive
from headscope.studies.anatomy import cache_bytes, readable_bytes, sharing
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_result import StudyResult

CONTEXT = 4096


@dataclass(frozen=True)
class Shape:
    """Shape of the attention of a model, as its published configuration states it."""

    model: str
    layers: int
    heads: int
    key_value_heads: int
    d_model: int
    d_head: int


SHAPES = (
    Shape("GPT-2 small", 12, 12, 12, 768, 64),
    Shape("GPT-2 medium", 24, 16, 16, 1024, 64),
    Shape("GPT-2 large", 36, 20, 20, 1280, 64),
    Shape("GPT-2 XL", 48, 25, 25, 1600, 64),
    Shape("Pythia 70m", 6, 8, 8, 512, 64),
    Shape("Pythia 160m", 12, 12, 12, 768, 64),
    Shape("Pythia 410m", 24, 16, 16, 1024, 64),
    Shape("Pythia 1b", 16, 8, 8, 2048, 256),
    Shape("Pythia 1.4b", 24, 16, 16, 2048, 128),
    Shape("Pythia 2.8b", 32, 32, 32, 2560, 80),
    Shape("Pythia 6.9b", 32, 32, 32, 4096, 128),
    Shape("Pythia 12b", 36, 40, 40, 5120, 128),
    Shape("Llama 2 7B", 32, 32, 32, 4096, 128),
    Shape("Llama 2 13B", 40, 40, 40, 5120, 128),
    Shape("Llama 2 70B", 80, 64, 8, 8192, 128),
    Shape("Llama 3 8B", 32, 32, 8, 4096, 128),
    Shape("Llama 3 70B", 80, 64, 8, 8192, 128),
    Shape("Llama 3.1 405B", 126, 128, 8, 16384, 128),
    Shape("Gemma 3 270M", 18, 4, 1, 640, 256),
    Shape("Gemma 3 1B", 26, 4, 1, 1152, 256),
    Shape("Gemma 3 4B", 34, 8, 4, 2560, 256),
    Shape("Gemma 3 12B", 48, 16, 8, 3840, 256),
    Shape("Gemma 3 27B", 62, 32, 16, 5376, 128),
    Shape("Qwen 3 0.6B", 28, 16, 8, 1024, 128),
    Shape("Qwen 3 1.7B", 28, 16, 8, 2048, 128),
    Shape("Qwen 3 4B", 36, 32, 8, 2560, 128),
    Shape("Qwen 3 8B", 36, 32, 8, 4096, 128),
    Shape("Qwen 3 14B", 40, 40, 8, 5120, 128),
    Shape("Qwen 3 32B", 64, 64, 8, 5120, 128),
)
"""Source: the configuration that was published with each model."""


STUDY = Study(
    command=Command(
        group="study",
        summary="List heads and cache sizes of well-known models.",
        examples=("headscope study shapes --context 8192 --batch 4",),
        figure="",
    ),
    rows="model",
    columns=table_columns("""
        model | text | name of the model
        attention | `MHA`, `GQA` or `MQA` | how heads share keys and values
        layers | count, ≥ 1 | number of layers
        heads | count, ≥ 1 | heads of a layer
        key_value_heads | count, ≥ 1 | key/value heads of a layer
        d_model | count, ≥ 1 | width of the residual stream
        d_head | count, ≥ 1 | width of a head
        cache | bytes, ≥ 0 | keys and values of all layers in float16
        cache_mha | bytes, ≥ 0 | the same with a key/value head for each head
    """),
    bad_call={"context": 0},
)


@study(STUDY)
def shapes(
    *,
    context: Annotated[Positive, Field(description="Tokens in the cache.")] = CONTEXT,
    batch: Annotated[Positive, Field(description="Sequences in the cache.")] = 1,
) -> StudyResult:
    """List layers, heads, head dimension and key/value cache of well-known models.

    The cache is computed as if every layer attended to the whole context. Sliding windows of
    Gemma 3 make it smaller.
    """
    rows = [_row(shape, context * batch) for shape in SHAPES]
    table = pd.DataFrame(rows, columns=STUDY.names)
    readable = {name: table[name].map(readable_bytes) for name in ("cache", "cache_mha")}
    return StudyResult(
        title=f"shapes of {len(SHAPES)} models: cache of {context:,} tokens × {batch:,} in float16",
        table=table,
        terminal_table=table.assign(**readable),
        values={"context": context, "batch": batch},
    )


def _row(shape: Shape, tokens: int) -> dict[str, object]:
    """The row of a model."""
    layers, d_head = shape.layers, shape.d_head
    return {
        "model": shape.model,
        "attention": sharing(shape.heads, shape.key_value_heads),
        "layers": layers,
        "heads": shape.heads,
        "key_value_heads": shape.key_value_heads,
        "d_model": shape.d_model,
        "d_head": d_head,
        "cache": cache_bytes(layers, shape.key_value_heads, d_head, tokens),
        "cache_mha": cache_bytes(layers, shape.heads, d_head, tokens),
    }
