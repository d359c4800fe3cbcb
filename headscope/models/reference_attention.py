"""Attention written out step by step: multi-head, grouped and single-key, from four matrices.

The engines never call it. It states what they compute, and tests compare them with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Float
from torch import Tensor

from headscope.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class AttentionResult:
    """Output of attention, and the patterns that it comes from."""

    output: Float[Tensor, "batch position d_model"]
    pattern: Float[Tensor, "batch head query key"]
    """Attention in [0, 1]; each row sums to 1."""


def reference_attention(
    x: Float[Tensor, "batch position d_model"],
    w_q: Float[Tensor, "d_model heads_times_d_head"],
    w_k: Float[Tensor, "d_model groups_times_d_head"],
    w_v: Float[Tensor, "d_model groups_times_d_head"],
    w_o: Float[Tensor, "heads_times_d_head d_model"],
    *,
    num_heads: int,
    causal: bool = True,
) -> AttentionResult:
    """Attention of `num_heads` heads without biases and positions.

        pattern_h = softmax(q_h k_hᵀ / √d_head),  output = [z_1 … z_H] W_O,  z_h = pattern_h v_h

    W_K states the number of key/value heads: as many as heads (multi-head attention), fewer
    (grouped-query attention), or one for all (multi-query attention).

    Source: Vaswani et al. 2017, section 3.2; Shazeer 2019, section 3, for one key; Ainslie et al.
    2023, section 2.2, for groups.

    Args:
        x: what the layer reads.
        w_q: query matrix; columns of head 0 come first.
        w_k: key matrix, as wide as its key/value heads.
        w_v: value matrix, as wide as W_K.
        w_o: output matrix.
        num_heads: number of query heads.
        causal: if true, a query attends to no later key.

    Raises:
        ArgumentError: the matrices do not divide into heads of one width.

    >>> x, w = torch.randn(1, 5, 8), torch.randn(4, 8, 8)
    >>> result = reference_attention(x, *w, num_heads=2)
    >>> result.output.shape, result.pattern.shape
    (torch.Size([1, 5, 8]), torch.Size([1, 2, 5, 5]))
    """
    d_head = head_width(w_q, w_k, num_heads)
    query = split_heads(x @ w_q, d_head)
    key = split_heads(x @ w_k, d_head)
    value = split_heads(x @ w_v, d_head)
    pattern = attention_pattern(query, key, causal=causal)
    z = mix_values(pattern, value)
    return AttentionResult(output=merge_heads(z) @ w_o, pattern=pattern)


def single_head_attention(
    x: Float[Tensor, "batch position d_model"],
    w_q: Float[Tensor, "d_model d_head"],
    w_k: Float[Tensor, "d_model d_head"],
    w_v: Float[Tensor, "d_model d_head"],
    w_o: Float[Tensor, "d_head d_model"],
    *,
    causal: bool = True,
) -> AttentionResult:
    """Attention of one head, without an axis of heads.

    `reference_attention` with `num_heads=1` gives the same bytes.

    Source: Vaswani et al. 2017, equation 1.
    """
    query = x @ w_q
    key = x @ w_k
    value = x @ w_v
    scores = query @ key.mT * query.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(later_keys(scores), -torch.inf)
    pattern = scores.softmax(-1)
    output = pattern @ value @ w_o
    return AttentionResult(output=output, pattern=pattern[:, None])


def head_width(
    w_q: Float[Tensor, "d_model heads_times_d_head"],
    w_k: Float[Tensor, "d_model groups_times_d_head"],
    num_heads: int,
) -> int:
    """Width of a head.

    Raises:
        ArgumentError: the matrices do not divide into heads of one width.
    """
    width = w_q.shape[1]
    if num_heads < 1 or width % num_heads:
        raise ArgumentError(f"num_heads is {num_heads}; it should divide W_Q's {width} columns")
    d_head = width // num_heads
    groups, rest_columns = divmod(w_k.shape[1], d_head)
    if rest_columns or not groups or num_heads % groups:
        raise ArgumentError(
            f"w_k has {w_k.shape[1]} columns; with heads of width {d_head} it should have "
            f"{d_head} times a divisor of {num_heads}"
        )
    return d_head


def split_heads(
    projected: Float[Tensor, "batch position head_times_d_head"], d_head: int
) -> Float[Tensor, "batch head position d_head"]:
    """Columns of one projection, head by head."""
    return rearrange(projected, "batch pos (head d) -> batch head pos d", d=d_head)


def attention_pattern(
    query: Float[Tensor, "batch head query d_head"],
    key: Float[Tensor, "batch group key d_head"],
    *,
    causal: bool = True,
    scale: float | None = None,
    bias: Float[Tensor, "#batch #head query key"] | None = None,
    cap: float | None = None,
    sink: Float[Tensor, " head"] | None = None,
) -> Float[Tensor, "batch head query key"]:
    """Softmax of the scores.

    Args:
        query: of each head, after rotary positions.
        key: of each head or of each group of heads.
        causal: if true, a query attends to no later key.
        scale: factor of q·k. Default: 1 / √d_head.
        bias: added to the scores; −∞ hides a key.
        cap: scores s become cap · tanh(s / cap) (Gemma 2).
        sink: a score of each head that takes its share of each row, which then sums to less than 1
            (gpt-oss).
    """
    key = repeat_groups(key, heads=query.shape[1])
    scores = einsum(query, key, "batch head q d, batch head k d -> batch head q k")
    scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    if bias is not None:
        scores = scores + bias
    if causal:
        scores = scores.masked_fill(later_keys(scores), -torch.inf)
    # a learned sink is one more key, without a value
    if sink is None:
        return scores.softmax(-1)
    batch, _, queries, _ = scores.shape
    column = repeat(sink, "head -> batch head q 1", batch=batch, q=queries)
    with_sink = torch.cat([scores, column.to(scores)], dim=-1).softmax(-1)
    return with_sink[..., :-1]


def mix_values(
    pattern: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch group key d_head"],
) -> Float[Tensor, "batch head query d_head"]:
    """z: each head's mean of values, weighted by its pattern."""
    value = repeat_groups(value, heads=pattern.shape[1])
    return einsum(pattern, value, "batch head q k, batch head k d -> batch head q d")


def merge_heads(
    z: Float[Tensor, "batch head position d_head"],
) -> Float[Tensor, "batch position head_times_d_head"]:
    """Outputs of the heads side by side, as W_O reads them."""
    return rearrange(z, "batch head pos d -> batch pos (head d)")


def repeat_groups(
    shared: Float[Tensor, "batch group position d_head"], *, heads: int
) -> Float[Tensor, "batch head position d_head"]:
    """Keys or values of each group of neighbouring heads, once for each head."""
    size = heads // shared.shape[1]
    return repeat(shared, "batch group pos d -> batch (group size) pos d", size=size)


def later_keys(scores: Float[Tensor, "*leading query key"]) -> Tensor:
    """True for keys after their query."""
    queries, keys = scores.shape[-2:]
    return torch.ones(queries, keys, dtype=torch.bool, device=scores.device).triu(1)
