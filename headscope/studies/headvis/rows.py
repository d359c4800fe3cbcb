"""What HeadVis' metrics and maxima are made of, for each row of attention."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HIGH = 0.1
"""Attention from which on a key beyond the first token is said to be attended to strongly; ours."""
EVEN = 1e-4
"""Nats: scores of a row that differ by less than this are all the same but for rounding."""

_Rows = Float[Tensor, "head query key"]
_Each = Float[Tensor, "head query"]


class Facts(NamedTuple):
    """Of each row of each head; NaN where a row has no such number."""

    own: _Each
    """Attention to itself."""
    previous: _Each
    """Attention to the token before; the first row has none."""
    entropy: _Each
    """Shannon's, in nats."""
    mass: _Each
    """What the row sums to: 1, or what a learned sink leaves of it."""
    distance: _Each
    """The sum of |q − k| times attention."""
    square: _Each
    """The sum of |q − k|² times attention."""
    induction: _Each
    """Attention to tokens just behind one that is the query's own token, wherever that stands."""
    spread: _Each
    """Standard deviation of the scores of the keys that the query sees; of two or more keys."""
    margin: _Each
    """The largest score minus the second."""
    z: _Each
    """(largest − mean) ÷ standard deviation of the scores; none where they are all the same."""
    best: _Each
    """Attention to the strongest key, the first token left out; not above 0 where there is none."""
    key: Int[Tensor, "head query"]
    """Which key that is."""
    largest: _Each
    """The same without the query itself."""


def facts(logarithms: _Rows, tokens: Int[Tensor, " position"], first: int) -> Facts:
    """What some rows of one window show.

    Scores before the softmax are the logarithms of attention but for a constant of each row, so
    that their spread, margin and z are those of the logarithms. A probability that underflows to 0
    (below 1e-45, in the lens engine alone) counts as that of a key that is not seen.

    Args:
        logarithms: of attention, −∞ where nothing is seen; the queries are those from `first` on.
        tokens: of the whole window.
        first: the position of the first query.
    """
    attention = logarithms.exp()
    query = first + torch.arange(attention.shape[1], device=attention.device)
    key = torch.arange(attention.shape[2], device=attention.device)
    away = (query[:, None] - key).abs().to(attention.dtype)
    seen = logarithms > -torch.inf
    known = logarithms.masked_fill(~seen, 0.0)
    none = torch.full_like(attention[..., 0], torch.nan)
    before = attention.gather(2, _column(attention, query - 1))[..., 0]
    beyond = _beyond_first(attention, query, key)
    best = beyond.max(-1)
    itself = query[:, None] == key
    return Facts(
        own=attention.gather(2, _column(attention, query))[..., 0],
        previous=torch.where(query > 0, before, none),
        entropy=-(attention * known).sum(-1),
        mass=attention.sum(-1),
        distance=(attention * away).sum(-1),
        square=(attention * away**2).sum(-1),
        induction=(attention * _behind_same(tokens, query, key)).sum(-1),
        **_scores(logarithms, known, seen, none),
        best=best.values,
        key=best.indices,
        largest=beyond.masked_fill(itself, -1.0).amax(-1),
    )


def _scores(
    logarithms: _Rows, known: _Rows, seen: Bool[Tensor, "head query key"], none: _Each
) -> dict[str, Tensor]:
    count = seen.sum(-1)
    mean = known.sum(-1) / count.clamp_min(1)
    apart = ((known - mean[..., None]) ** 2).masked_fill(~seen, 0.0)
    spread = (apart.sum(-1) / count.clamp_min(1)).sqrt()
    top = logarithms.topk(min(2, logarithms.shape[-1]), -1).values
    several = count > 1
    return {
        "spread": torch.where(several, spread, none),
        "margin": torch.where(several, top[..., 0] - top[..., -1], none),
        "z": torch.where(several & (spread > EVEN), (top[..., 0] - mean) / spread, none),
    }


def _beyond_first(
    attention: _Rows, query: Int[Tensor, " query"], key: Int[Tensor, " key"]
) -> _Rows:
    """Attention without the first token's row and column, in whose places there is −1."""
    return attention.masked_fill((query[:, None] == 0) | (key == 0), -1.0)


def _behind_same(
    tokens: Int[Tensor, " position"], query: Int[Tensor, " query"], key: Int[Tensor, " key"]
) -> Bool[Tensor, "query key"]:
    """Where the key before is the query's own token."""
    same = tokens[query][:, None] == tokens[(key - 1).clamp_min(0)]
    return same & (key > 0)


def _column(attention: _Rows, key: Int[Tensor, " query"]) -> Int[Tensor, "head query 1"]:
    return key.clamp_min(0)[None, :, None].expand(len(attention), -1, 1)
