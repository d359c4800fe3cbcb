"""Checks of shapes that have to fit together, and the message when they do not.

The functions that call these checks write `_d_model` and the like in their signatures: the
underscore leaves the comparison of sizes to the check, so that a wrong one is a ShapeError with
the numbers in it.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from headscope.errors import ShapeError


def check_width(what: str, x: Float[Tensor, "*_shape"], width: int) -> None:
    """Check that the last axis of `x` is `width` long.

    Raises:
        ShapeError: it is not.
    """
    if x.ndim == 0 or x.shape[-1] != width:
        raise ShapeError(f"{what} has shape {tuple(x.shape)}; its last axis should be {width} long")


def check_sequences(
    query: Float[Tensor, "*_shape"], key: Float[Tensor, "*_shape"], value: Float[Tensor, "*_shape"]
) -> None:
    """Check that one batch of queries, keys and values belongs together.

    Queries and keys are of one width, keys and values of one length; all else before these two
    axes is the same for the three.

    Raises:
        ShapeError: they do not belong together; the message gives the three shapes.
    """
    fits = (
        min(query.ndim, key.ndim, value.ndim) >= 2
        and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        and query.shape[-1] == key.shape[-1]
        and key.shape[-2] == value.shape[-2]
    )
    if not fits:
        raise ShapeError(
            f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)} do "
            "not fit; asked for are (…, query, width), (…, key, width) and (…, key, any width)"
        )
