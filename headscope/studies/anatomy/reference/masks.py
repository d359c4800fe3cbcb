"""Which keys a query may look at: True where it may."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference.shapes import check_mask


def causal_mask(length: int, *, device: torch.device | None = None) -> Bool[Tensor, "query key"]:
    """Each query sees itself and what came before: a lower triangle of True, length × length.

    >>> causal_mask(3).int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def allowed(
    mask: Shaped[Tensor, "*_batch _query _key"] | None,
    scores: tuple[int, ...],
    *,
    causal: bool,
    device: torch.device,
) -> Bool[Tensor, "*_batch _query _key"] | None:
    """The mask and causality in one mask; None when every query sees every key.

    Args:
        mask: True where a query may look; stretches to `scores`.
        scores: the shape of the scores, (…, query, key).
        causal: whether queries see no later keys.
        device: where the scores are.

    Raises:
        ShapeError: the mask does not stretch to the scores or is not boolean; or attention is
            causal and the queries are not as many as the keys.
    """
    if mask is not None:
        check_mask(mask, scores)
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
