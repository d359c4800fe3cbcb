"""How many bytes the keys and values of past tokens take while a model writes."""

from __future__ import annotations

from headscope.architecture.dimensions import Dimensions
from headscope.architecture.rows import CacheSize
from headscope.errors import ChoiceError, HeadscopeError

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


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
        HeadscopeError: a context or batch below 1.
        ChoiceError: no such dtype.
    """
    if dtype not in BYTES:
        raise ChoiceError("dtype", dtype, BYTES)
    for what, number in (("context", context), ("batch", batch)):
        if number < 1:
            raise HeadscopeError(f"{what} is {number}: a cache needs at least 1")
    variants = {"full": dimensions.heads, "own": dimensions.key_value_heads, "single": 1}
    rows = []
    for variant, heads in variants.items():
        per_token = 2 * dimensions.layers * heads * dimensions.d_head * BYTES[dtype]
        rows.append(CacheSize(variant, heads, per_token, per_token * context * batch))
    return tuple(rows)
