"""Shapes of well-known models as their papers give them, with what follows from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from headscope.arguments import takes, whole
from headscope.models.layout.model_layout import GPT2, LLAMA
from headscope.studies.anatomy.anatomy_dimensions import Dimensions, cache_sizes
from headscope.studies.anatomy.parameters import formulas

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


_SIZES = ("layers", "heads", "key_value_heads", "d_model", "d_ff", "context")
_GPT: dict[str, Any] = {"vocabulary": 50_257, "tied": True, "tensors": GPT2}
_LLAMA: dict[str, Any] = {"vocabulary": 32_000, "tied": False, "tensors": LLAMA}
_FIELDS = {
    "gpt2": ("n_layer", "n_head", None, "n_embd", "n_inner", "n_positions"),
    "llama": (
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "intermediate_size",
        "max_position_embeddings",
    ),
}
"""What transformers' configuration of a model type calls `_SIZES`."""


def _shape(
    name: str, sizes: tuple[int, ...], family: dict[str, Any], stated: str, source: str
) -> Shape:
    numbers: dict[str, Any] = dict(zip(_SIZES, sizes, strict=True))
    d_head = numbers["d_model"] // numbers["heads"]
    return Shape(name, Dimensions(**numbers, d_head=d_head, **family), stated, source)


# the GPT-2 paper prints smaller totals than its models have: its repository corrects them
_RADFORD = "Radford et al. 2019, table 2; heads and sizes as released"
_BROWN = "Brown et al. 2020, table 2.1"
_TOUVRON_1 = "Touvron et al. 2023a (Llama), table 2; d_ff as released"
_TOUVRON_2 = "Touvron et al. 2023b (Llama 2), table 1, A.2.1; d_ff as released"
SHAPES = (
    _shape("GPT-2 S", (12, 12, 12, 768, 3072, 1024), _GPT, "124M", _RADFORD),
    _shape("GPT-2 M", (24, 16, 16, 1024, 4096, 1024), _GPT, "355M", _RADFORD),
    _shape("GPT-2 L", (36, 20, 20, 1280, 5120, 1024), _GPT, "774M", _RADFORD),
    _shape("GPT-2 XL", (48, 25, 25, 1600, 6400, 1024), _GPT, "1.5B", _RADFORD),
    _shape("GPT-3 175B", (96, 96, 96, 12_288, 49_152, 2048), _GPT, "175.0B", _BROWN),
    _shape("Llama 7B", (32, 32, 32, 4096, 11_008, 2048), _LLAMA, "6.7B", _TOUVRON_1),
    _shape("Llama-2 70B", (80, 64, 8, 8192, 28_672, 4096), _LLAMA, "70B", _TOUVRON_2),
)


def find_shape(name: str) -> Shape | None:
    """The published shape of this name, however it is written; None if there is none."""
    key = name.lower().replace(" ", "-")
    return next((shape for shape in SHAPES if shape.key == key), None)


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
    return pd.DataFrame([_row(shape, context, batch, dtype) for shape in SHAPES])


def transformers_config(dimensions: Dimensions) -> dict[str, Any]:
    """The configuration by which transformers builds a published shape."""
    model_type = "gpt2" if dimensions.tensors is GPT2 else "llama"
    fields = dict(zip(_FIELDS[model_type], _SIZES, strict=True))
    sizes = {field: getattr(dimensions, name) for field, name in fields.items() if field}
    return {
        "model_type": model_type,
        **sizes,
        "vocab_size": dimensions.vocabulary,
        "tie_word_embeddings": dimensions.tied,
    }


def _row(shape: Shape, context: int, batch: int, dtype: str) -> dict[str, object]:
    parts = formulas(shape.dimensions)
    numbers = asdict(shape.dimensions)
    del numbers["tied"], numbers["tensors"]
    sizes = cache_sizes(shape.dimensions, context=context, batch=batch, dtype=dtype)
    return {
        "model": shape.key,
        **numbers,
        "attention_weights_per_layer": parts["attention weights"].value,
        "feed_forward_weights_per_layer": parts["feed-forward weights"].value,
        "parameters": parts["total"].value,
        "stated": shape.stated,
        **{f"cache_bytes_{size.variant}": size.bytes for size in sizes},
        "cache_context": context,
        "cache_batch": batch,
        "cache_dtype": dtype,
        "source": shape.source,
    }
