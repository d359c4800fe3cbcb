"""Shapes of well-known models as their papers give them, with what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from headscope.arguments import takes, whole
from headscope.studies.anatomy.cache_size import cache_sizes
from headscope.studies.anatomy.dimensions import GPT2, LLAMA, Dimensions
from headscope.studies.anatomy.formula import layer_formulas, model_formulas

CONTEXT, BATCH, DTYPE = 4096, 8, "float16"
"""What the table's caches are for: one common setting makes models comparable."""


@dataclass(frozen=True)
class Shape:
    """A published model."""

    name: str
    dimensions: Dimensions
    stated: str
    """Its number of parameters in its authors' words."""
    source: str

    @property
    def key(self) -> str:
        """The name as it is typed: `gpt-2-xl`."""
        return self.name.lower().replace(" ", "-")


def _gpt(layers: int, heads: int, d_model: int, context: int) -> Dimensions:
    return Dimensions(
        layers=layers, heads=heads, key_value_heads=heads, d_model=d_model,
        d_head=d_model // heads, d_ff=4 * d_model, vocabulary=50_257, context=context,
        tied=True, layout=GPT2,
    )  # fmt: skip


def _llama(layers: int, heads: int, groups: int, d_model: int, d_ff: int, context: int) -> (
    Dimensions
):  # fmt: skip
    return Dimensions(
        layers=layers, heads=heads, key_value_heads=groups, d_model=d_model,
        d_head=d_model // heads, d_ff=d_ff, vocabulary=32_000, context=context,
        tied=False, layout=LLAMA,
    )  # fmt: skip


# the GPT-2 paper prints smaller totals than its models have: its repository corrects them
_RADFORD = "Radford et al. 2019, table 2; heads and sizes as released"
SHAPES = (
    Shape("GPT-2 S", _gpt(12, 12, 768, 1024), "124M", _RADFORD),
    Shape("GPT-2 M", _gpt(24, 16, 1024, 1024), "355M", _RADFORD),
    Shape("GPT-2 L", _gpt(36, 20, 1280, 1024), "774M", _RADFORD),
    Shape("GPT-2 XL", _gpt(48, 25, 1600, 1024), "1.5B", _RADFORD),
    Shape(
        "GPT-3 175B", _gpt(96, 96, 12_288, 2048), "175.0B", "Brown et al. 2020, table 2.1"
    ),
    Shape(
        "Llama 7B", _llama(32, 32, 32, 4096, 11_008, 2048), "6.7B",
        "Touvron et al. 2023a (Llama), table 2; d_ff as released",
    ),
    Shape(
        "Llama-2 70B", _llama(80, 64, 8, 8192, 28_672, 4096), "70B",
        "Touvron et al. 2023b (Llama 2), table 1, A.2.1; d_ff as released",
    ),
)  # fmt: skip


def find_shape(name: str) -> Shape | None:
    """The published shape of this name, however it is written; None if there is none."""
    wanted = name.lower().replace(" ", "-")
    return next((shape for shape in SHAPES if shape.key == wanted), None)


@takes(context=whole(1))
def published_shapes(
    *, context: int = CONTEXT, batch: int = BATCH, dtype: str = DTYPE
) -> pd.DataFrame:
    """A row per published shape; parameters by formula, caches in bytes.

    Args:
        context: tokens kept per sequence.
        batch: sequences.
        dtype: `float16`, `bfloat16` or `float32`, of keys and values.

    Raises:
        HeadscopeError: a context or batch below 1, or no such dtype.
    """
    rows = [_row(shape, context, batch, dtype) for shape in SHAPES]
    return pd.DataFrame(rows)


def transformers_config(dimensions: Dimensions) -> dict[str, Any]:
    """The configuration by which transformers builds a published shape."""
    d = dimensions
    shared = {"vocab_size": d.vocabulary, "tie_word_embeddings": d.tied}
    if d.layout is GPT2:
        return {
            "model_type": "gpt2", "n_layer": d.layers, "n_head": d.heads, "n_embd": d.d_model,
            "n_inner": d.d_ff, "n_positions": d.context, **shared,
        }  # fmt: skip
    return {
        "model_type": "llama", "num_hidden_layers": d.layers, "num_attention_heads": d.heads,
        "num_key_value_heads": d.key_value_heads, "hidden_size": d.d_model,
        "intermediate_size": d.d_ff, "max_position_embeddings": d.context, **shared,
    }  # fmt: skip


def _row(shape: Shape, context: int, batch: int, dtype: str) -> dict[str, object]:
    d = shape.dimensions
    layer = {each.part: each.value for each in layer_formulas(d)}
    sizes = cache_sizes(d, context=context, batch=batch, dtype=dtype)
    return {
        "model": shape.key, "layers": d.layers, "heads": d.heads,
        "key_value_heads": d.key_value_heads, "d_model": d.d_model, "d_head": d.d_head,
        "d_ff": d.d_ff, "vocabulary": d.vocabulary, "context": d.context,
        "attention_weights_per_layer": layer["attention weights"],
        "feed_forward_weights_per_layer": layer["feed-forward weights"],
        "parameters": model_formulas(d)[-1].value, "stated": shape.stated,
        **{f"cache_bytes_{size.variant}": size.bytes for size in sizes},
        "cache_context": context, "cache_batch": batch, "cache_dtype": dtype,
        "source": shape.source,
    }  # fmt: skip
