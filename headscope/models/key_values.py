"""What the keys and values of past tokens cost: the one arithmetic of the key/value cache."""

from __future__ import annotations

from headscope.errors import ChoiceError

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


def bytes_per_key(d_head: int, dtype: str) -> int:
    """Bytes that one key/value head keeps of one token: a key and a value.

    Query heads of a group share theirs, which count once (Ainslie et al. 2023, section 2.2).

    Args:
        d_head: numbers in a key, and in a value.
        dtype: `float16`, `bfloat16` or `float32`.

    Raises:
        ChoiceError: no such dtype.

    >>> bytes_per_key(64, "float16")
    256
    """
    if dtype not in BYTES:
        raise ChoiceError("dtype", dtype, BYTES)
    return 2 * d_head * BYTES[dtype]
