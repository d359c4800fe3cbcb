"""One projection holds all heads side by side: taking them apart and putting them together."""

from __future__ import annotations

from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from headscope.errors import ShapeError


def check_split(d_model: int, n_heads: int) -> None:
    """Check that heads share out d_model evenly.

    Raises:
        ShapeError: they do not, or there is no head at all.
    """
    if n_heads < 1 or d_model % n_heads:
        raise ShapeError(
            f"d_model {d_model} cannot be split evenly over {n_heads} heads; "
            "choose a number of heads that divides it, or give d_head"
        )


def check_groups(n_heads: int, n_kv_heads: int) -> None:
    """Check that every key/value head serves the same number of heads.

    Raises:
        ShapeError: the number of heads is no multiple of the number of key/value heads.

    >>> check_groups(32, 8)
    >>> check_groups(6, 4)
    Traceback (most recent call last):
    headscope.errors.ShapeError: 6 heads cannot share 4 key/value heads evenly; choose a number ...
    """
    if n_heads < 1 or n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ShapeError(
            f"{n_heads} heads cannot share {n_kv_heads} key/value heads evenly; "
            f"choose a number of key/value heads that divides {n_heads}"
        )


def split_heads(
    x: Float[Tensor, "batch position features"], heads: int
) -> Float[Tensor, "batch head position d_head"]:
    """The features of each head on an axis of their own; head 0 has the first of them.

    >>> import torch
    >>> split_heads(torch.arange(6.0).reshape(1, 1, 6), heads=2).tolist()
    [[[[0.0, 1.0, 2.0]], [[3.0, 4.0, 5.0]]]]
    """
    return rearrange(x, "batch position (head d_head) -> batch head position d_head", head=heads)


def share_heads(
    x: Float[Tensor, "batch kv_head position d_head"], heads: int
) -> Float[Tensor, "batch head position d_head"]:
    """Key or value heads, each repeated for the query heads in a row that it serves.

    Source: Shazeer 2019, “Fast Transformer Decoding” (one for all); Ainslie et al. 2023, “GQA”,
    section 2.2 (one for a group).
    """
    group = heads // x.shape[1]
    return repeat(x, "batch kv_head position d -> batch (kv_head group) position d", group=group)


def merge_heads(
    x: Float[Tensor, "batch head position d_head"],
) -> Float[Tensor, "batch position features"]:
    """Heads side by side in one axis: what `split_heads` took apart."""
    return rearrange(x, "batch head position d_head -> batch position (head d_head)")
