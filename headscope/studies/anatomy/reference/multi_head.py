"""Multi-head attention: several small attentions side by side, on one residual stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from einops import einsum, rearrange, repeat
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference.attention import (
    Attended,
    attend,
    attend_fast,
    check_sequences,
)
from headscope.studies.anatomy.reference.positions import RelativePositions, Rotary


class MultiHeadAttention(nn.Module):
    """Heads that each attend in a subspace of their own; W_O sums what they found.

        z_h = attend(query W_Q^h, key W_K^h, value W_V^h)
        output = concat(z_1, …, z_H) W_O + b_O

    However many heads there are, the four matrices hold 4 · d_model² weights, as long as
    n_kv_heads is n_heads and d_head is d_model / n_heads.

    Args:
        d_model: width of the residual stream.
        n_heads: number of query heads.
        n_kv_heads: number of key and value heads; each serves n_heads / n_kv_heads query heads in
            a row. None: as many as heads; 1: multi-query attention; between: grouped.
        d_head: width of a head; d_model / n_heads when None.
        bias: whether the four projections have a bias.
        causal: whether a query sees no later keys.
        rotary: turns queries and keys by their positions.
        relative: learned vectors for distances.

    Raises:
        ShapeError: heads do not divide d_model, key/value heads do not divide heads, or positions
            are for heads of another width.

    Source: Vaswani et al. 2017, “Attention Is All You Need”, section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        bias: bool = True,
        causal: bool = False,
        rotary: Rotary | None = None,
        relative: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if d_head is None:
            if n_heads < 1 or d_model % n_heads:
                raise ShapeError(
                    f"d_model {d_model} cannot be split evenly over {n_heads} heads; "
                    "choose a number of heads that divides it, or give d_head"
                )
            d_head = d_model // n_heads
        _check_heads(n_heads, n_kv_heads, d_head, rotary, relative)
        self.d_model, self.d_head = d_model, d_head
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.causal, self.rotary, self.relative = causal, rotary, relative
        self.scale = d_head**-0.5  # to be set where a pretrained layer has another
        self.W_Q = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.W_K = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.W_V = nn.Linear(d_model, n_kv_heads * d_head, bias=bias)
        self.W_O = nn.Linear(n_heads * d_head, d_model, bias=bias)

    def forward(
        self,
        query: Float[Tensor, "*_batch _query _d_model"],
        key: Float[Tensor, "*_batch _key _d_model"],
        value: Float[Tensor, "*_batch _key _d_model"],
        *,
        mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
        return_pattern: bool = False,
    ) -> Attended:
        """The layer's addition to the residual stream of the queries.

        Self-attention is given one sequence three times; cross-attention takes queries from one
        sequence, keys and values from another.

        Args:
            query: [batch query d_model].
            key: [batch key d_model].
            value: [batch key d_model].
            mask: boolean, True where a query may look; stretches to [batch head query key], so
                that a mask per text is [batch 1 query key].
            return_pattern: whether the pattern is wanted too. Without it, and without relative
                positions, torch's fused kernel does the work.

        Returns:
            The output [batch query d_model], and the pattern [batch head query key] or None.

        Raises:
            ShapeError: the inputs do not fit each other, the mask or the layer.
        """
        z, pattern = self.mix(query, key, value, mask=mask, return_pattern=return_pattern)
        return Attended(self.W_O(merge_heads(z)), pattern)

    def mix(
        self,
        query: Float[Tensor, "*_batch _query _d_model"],
        key: Float[Tensor, "*_batch _key _d_model"],
        value: Float[Tensor, "*_batch _key _d_model"],
        *,
        mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
        return_pattern: bool = False,
    ) -> Attended:
        """Each head's z [batch head query d_head], before W_O; for the rest see `forward`."""
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.ndim != 3 or x.shape[-1] != self.d_model:
                raise ShapeError(
                    f"the {name} has shape {tuple(x.shape)}; asked for is "
                    f"(batch, position, {self.d_model})"
                )
        check_sequences(query, key, value)
        q = split_heads(self.W_Q(query), self.n_heads)
        k = split_heads(self.W_K(key), self.n_kv_heads)
        v = split_heads(self.W_V(value), self.n_kv_heads)
        if self.rotary is not None:
            q, k = self.rotary(q), self.rotary(k)
        k, v = share_heads(k, self.n_heads), share_heads(v, self.n_heads)
        attention: Callable[..., Attended] = attend_fast
        if self.relative is not None:
            attention = partial(self.relative, return_pattern=return_pattern)
        elif return_pattern:
            attention = partial(attend, return_pattern=True)
        return attention(q, k, v, mask=mask, causal=self.causal, scale=self.scale)


def heads_output(
    attention: MultiHeadAttention,
    query: Float[Tensor, "*_batch _query _d_model"],
    key: Float[Tensor, "*_batch _key _d_model"],
    value: Float[Tensor, "*_batch _key _d_model"],
    *,
    mask: Shaped[Tensor, "*_batch _query _key"] | None = None,
) -> Float[Tensor, "batch head query d_model"]:
    """z_h W_O^h of every head: what it alone adds to the residual stream, in the stream's units.

        output = Σ_h z_h W_O^h + b_O

    Concatenating heads and multiplying by W_O is the same as giving each head its own rows of
    W_O and adding up. b_O belongs to no head and is left out.

    Args:
        attention: the layer.
        query: as the layer takes it, like `key`, `value` and `mask`.
        key: see query.
        value: see query.
        mask: see query.

    Raises:
        ShapeError: the inputs do not fit each other, the mask or the layer.

    Source: Elhage et al. 2021, “A Mathematical Framework for Transformer Circuits”, “Attention
    Heads are Independent and Additive”.
    """
    z, _ = attention.mix(query, key, value, mask=mask)
    # nn.Linear holds the transpose of W_O
    w_o = rearrange(
        attention.W_O.weight,
        "d_model (head d_head) -> head d_head d_model",
        head=attention.n_heads,
    )
    return einsum(
        z, w_o, "batch head query d_head, head d_head d_model -> batch head query d_model"
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
    """Heads side by side in one axis: the inverse of `split_heads`."""
    return rearrange(x, "batch head position d_head -> batch position (head d_head)")


def _check_heads(
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    rotary: Rotary | None,
    relative: RelativePositions | None,
) -> None:
    if n_heads < 1 or n_kv_heads < 1 or n_heads % n_kv_heads:
        raise ShapeError(
            f"{n_heads} heads cannot share {n_kv_heads} key/value heads evenly; "
            f"choose a number of key/value heads that divides {n_heads}"
        )
    if rotary is not None and rotary.d_rotary > d_head:
        raise ShapeError(f"{rotary.d_rotary} features are to be turned, but d_head is {d_head}")
    if relative is not None and relative.d_head != d_head:
        raise ShapeError(f"relative positions of width {relative.d_head}, but d_head is {d_head}")
