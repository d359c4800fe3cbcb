"""Scaled dot-product attention, written out: the one formula that all the rest serves."""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from headscope.studies.anatomy.reference.masks import allowed
from headscope.studies.anatomy.reference.shapes import check_sequences


class Attended(NamedTuple):
    """What attention returns: its output and, only if it was asked for, its pattern."""

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
    visible = allowed(mask, tuple(scores.shape), causal=causal, device=scores.device)
    pattern = masked_softmax(scores, visible)
    output = einsum(pattern, value, "... query key, ... key d_value -> ... query d_value")
    return Attended(output, pattern if return_pattern else None)


def masked_softmax(
    scores: Float[Tensor, "*batch query key"], visible: Bool[Tensor, "*#batch #query #key"] | None
) -> Float[Tensor, "*batch query key"]:
    """Softmax over the keys that are visible; a row without any is 0, where softmax gives NaN.

    >>> visible = torch.tensor([[False, False], [False, True]])
    >>> masked_softmax(torch.zeros(2, 2), visible).tolist()
    [[0.0, 0.0], [0.0, 1.0]]
    """
    if visible is None:
        return scores.softmax(-1)
    pattern = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    # hidden keys have 0 already, but for the rows without any visible key
    return pattern.masked_fill(~visible, 0.0)
