"""What has to fit together, and what the message says when it does not.

The functions that call these checks write `_d_model` and the like in their signatures: the
underscore leaves the comparison of sizes to the check, so that a wrong one is a ShapeError with
the numbers in it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Shaped
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


def check_streams(
    query: Float[Tensor, "*_shape"],
    key: Float[Tensor, "*_shape"],
    value: Float[Tensor, "*_shape"],
    d_model: int,
) -> None:
    """Check that three batches of residual streams, [batch position d_model], belong together.

    Raises:
        ShapeError: one is no such batch, or they do not belong together.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3 or x.shape[-1] != d_model:
            raise ShapeError(
                f"the {name} has shape {tuple(x.shape)}; asked for is (batch, position, {d_model})"
            )
    check_sequences(query, key, value)


def check_mask(mask: Shaped[Tensor, "*_shape"], scores: tuple[int, ...]) -> None:
    """Check that a mask is boolean and can be stretched to scores of shape (…, query, key).

    Raises:
        ShapeError: it is of another type, or cannot.
    """
    if mask.dtype != torch.bool:
        raise ShapeError(f"a mask of type {mask.dtype} came; asked for is bool, True where to look")
    stretched = zip(reversed(mask.shape), reversed(scores), strict=False)
    if not 2 <= mask.ndim <= len(scores) or any(
        size not in (1, wanted) for size, wanted in stretched
    ):
        raise ShapeError(
            f"a mask of shape {tuple(mask.shape)} does not stretch to scores of shape {scores}"
        )
