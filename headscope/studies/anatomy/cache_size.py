"""How many bytes the keys and values of past tokens take while a model writes."""

from __future__ import annotations

from headscope.models.key_values import bytes_per_key
from headscope.studies.anatomy.dimensions import Dimensions
from headscope.studies.anatomy.rows import CacheSize


def cache_sizes(
    dimensions: Dimensions, *, context: int, batch: int, dtype: str
) -> tuple[CacheSize, ...]:
    """The cache with as many key/value heads as heads, with the model's own, and with one.

    bytes = 2 (keys and values) × layers × key/value heads × d_head × context × batch × bytes of
    the dtype (Shazeer 2019, section 3, for one head; Ainslie et al. 2023, section 2.2, for groups).

    Args:
        dimensions: of the model.
        context: tokens kept per sequence.
        batch: sequences.
        dtype: `float16`, `bfloat16` or `float32`.

    Raises:
        ChoiceError: no such dtype.

    >>> from headscope.studies.anatomy.published import SHAPES
    >>> (gpt2,) = (shape for shape in SHAPES if shape.key == "gpt-2-s")
    >>> cache_sizes(gpt2.dimensions, context=1, batch=1, dtype="float16")[0].bytes
    36864
    """
    of_a_head = bytes_per_key(dimensions.d_head, dtype)
    variants = {"full": dimensions.heads, "own": dimensions.key_value_heads, "single": 1}
    rows = []
    for variant, heads in variants.items():
        per_token = dimensions.layers * heads * of_a_head
        rows.append(CacheSize(variant, heads, per_token, per_token * context * batch))
    return tuple(rows)
