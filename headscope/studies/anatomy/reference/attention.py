"""Scaled dot-product attention, written out: the one formula that all the rest serves.

With it its masks, True where a query may look, and the same numbers from torch's fused kernel,
which never holds a pattern in memory; and checks of shapes that have to fit together.

The functions that call these checks write `_d_model` and the like in their signatures: the
underscore leaves the comparison of sizes to the check, so that a wrong one is a ShapeError with
the numbers in it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headscope.errors import ShapeError


class Attended(NamedTuple):
    """The result of attention: its output and, only if it was asked for, its pattern."""

    output: Float[Tensor, "*batch query d_value"]
    pattern: Float[Tensor, "*batch query key"] | None


def attend(
    query: Float[Tensor, "*_batch _query _d_head"],
    key: Float[Tensor, "*_batch _key _d_head"],
    value: Float[Tensor, "*_batch _key _d_value"],
    *,
    mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
    causal: bool = False,
    scale: float | None = None,
    return_pattern: bool = False,
) -> Attended:
    """Each query's mean of the values, weighted by how well the keys match it.

        pattern = softmax(scale · q kᵀ)        output = pattern v

    One head, or any number of them in the axes before the last two.

    Args:
        query: what is looked for, [… query d_head].
        key: what is offered, [… key d_head].
        value: what is handed over, [… key d_value].
        mask: boolean, True where a query may look; stretches to [… query key].
        causal: whether queries see no later keys; asks for as many queries as keys.
        scale: what the products are multiplied by; 1/√d_head when None, so that the scores of
            random unit-variance queries and keys have variance 1.
        return_pattern: whether the pattern is wanted as well.

    Returns:
        The output [… query d_value], and the pattern [… query key] or None. A row of the pattern
        sums to 1; to 0 where the mask leaves the query no key, and its output is then 0.

    Raises:
        ShapeError: queries, keys, values and mask do not fit together.

    Source: Vaswani et al. 2017, “Attention Is All You Need”, section 3.2.1, equation 1.

    >>> one = torch.ones(2, 4)
    >>> value = torch.tensor([[0.0], [1.0]])
    >>> attend(one, one, value, causal=True, return_pattern=True).pattern.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    check_sequences(query, key, value)
    scores = einsum(query, key, "... query d_head, ... key d_head -> ... query key")
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    pattern = masked_softmax(scores, mask, causal=causal)
    output = einsum(pattern, value, "... query key, ... key d_value -> ... query d_value")
    return Attended(output, pattern if return_pattern else None)


def attend_fast(
    query: Float[Tensor, "*_batch _query _d_head"],
    key: Float[Tensor, "*_batch _key _d_head"],
    value: Float[Tensor, "*_batch _key _d_value"],
    *,
    mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Attended:
    """The result of `attend` without a pattern, up to rounding; for the arguments see there.

    Memory grows with the length and not with its square where torch has a kernel for it.

    Raises:
        ShapeError: queries, keys, values and mask do not fit together.

    Source: Dao et al. 2022, “FlashAttention”; torch.nn.functional.scaled_dot_product_attention.
    """
    check_sequences(query, key, value)
    visible = _visible((*query.shape[:-1], key.shape[-2]), mask, causal, query.device)
    if mask is None:
        # the kernel leaves out the upper triangle by itself, faster than by a mask
        output = scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scale)
    else:
        output = scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scale)
    return Attended(output, None)


def masked_softmax(
    scores: Float[Tensor, "*batch query key"],
    mask: Shaped[Tensor, "*_batch _query _key"] | None,
    *,
    causal: bool = False,
) -> Float[Tensor, "*batch query key"]:
    """Softmax over the keys that are visible; a row without any is 0, where softmax gives NaN.

    Raises:
        ShapeError: the mask does not stretch to the scores or is not boolean; or attention is
            causal and the queries are not as many as the keys.

    >>> visible = torch.tensor([[False, False], [False, True]])
    >>> masked_softmax(torch.zeros(2, 2), visible).tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """
    visible = _visible(tuple(scores.shape), mask, causal, scores.device)
    if visible is None:
        return scores.softmax(-1)
    pattern = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    # hidden keys have 0 already, but for the rows without any visible key
    return pattern.masked_fill(~visible, 0.0)


def causal_mask(length: int, *, device: torch.device | None = None) -> Bool[Tensor, "query key"]:
    """Each query sees itself and what came before: a lower triangle of True, length × length.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def _visible(
    scores: tuple[int, ...],
    mask: Shaped[Tensor, "*_batch _query _key"] | None,
    causal: bool,
    device: torch.device,
) -> Bool[Tensor, "*_batch _query _key"] | None:
    """The mask and causality in one mask for scores of a shape; None if every key is seen."""
    if mask is not None:
        _check_mask(mask, scores)
    if not causal:
        return mask
    queries, keys = scores[-2:]
    if queries != keys:
        raise ShapeError(
            f"causal attention of {queries} queries over {keys} keys; one sequence has to be both, "
            "for two sequences use causal=False and a mask"
        )
    earlier = causal_mask(keys, device=device)
    return earlier if mask is None else mask & earlier


def _check_mask(mask: Shaped[Tensor, "*_shape"], scores: tuple[int, ...]) -> None:
    if mask.dtype != torch.bool:
        raise ShapeError(f"a mask of type {mask.dtype} came; asked for is bool, True where to look")
    stretched = zip(reversed(mask.shape), reversed(scores), strict=False)
    if not 2 <= mask.ndim <= len(scores) or any(
        size not in (1, expected) for size, expected in stretched
    ):
        raise ShapeError(
            f"a mask of shape {tuple(mask.shape)} does not stretch to scores of shape {scores}"
        )


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
