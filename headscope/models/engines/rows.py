"""Rows of attention from queries and keys: scores minus each row's log-sum-exp.

They are made a few rows at a time and are gone when the next come, so that no pattern is ever kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.models.engines.engine import Cells, Picked, Read, Rows, Selves, Tile

CELLS_AT_ONCE = 512
"""Single cells whose queries and keys are gathered at once, so that they stay in a cache."""

Heads = Float[Tensor, "batch _ position width"]
Keys = Float[Tensor, "batch _ seen width"]
"""Across from a target to a source there are not as many as queries."""
Seen = Float[Tensor, "batch _ seen _"]
Values = Float[Tensor, "batch _ position _"]
"""Of another width than queries and keys in some layouts."""
Sums = Float[Tensor, "batch head position"]


class Beside(NamedTuple):
    """What a layer's attention has beside softmax(q·k·scale) over all earlier positions."""

    bias: Float[Tensor, "_ _ query key"] | None = None
    """Added to the scores, −∞ where a query does not look; every window's and head's where those
    axes are 1. None: a query sees itself and whatever comes before it, with no bias."""
    cap: float | None = None
    """Scores s become cap · tanh(s / cap) (Gemma 2)."""
    sink: Float[Tensor, " head"] | None = None
    """A score that takes its share of every row and belongs to no token (GPT-OSS)."""
    later: bool = False
    """Whether a query sees keys after it too; then there is a bias."""


PLAIN = Beside()


class Scores(NamedTuple):
    """What a row of scores is made of, and each row's log-sum-exp, that of a sink included."""

    query: Heads
    key: Keys
    scale: float
    normaliser: Sums
    beside: Beside = PLAIN
    value: Seen | None = None
    """None where nobody reads it."""


def log_probabilities(scores: Scores, look: Read) -> Any:
    """The logarithms of attention there, −∞ where a query does not look; in single precision.

    Exponentials of a row sum to 1, or with a sink to what the sink leaves. Beside attention to
    themselves queries have their values.
    """
    if isinstance(look, Selves):
        return _selves(scores, look)
    if isinstance(look, Cells):
        return _cells(scores, look)
    if isinstance(look, Picked):
        return _picked(scores, look)
    rows = scores.normaliser[look.windows, :, look.queries, None]
    return tile_scores(scores.query, scores.key, scores.scale, scores.beside, look).sub_(rows)


def pattern(query: Heads, key: Keys, scale: float, beside: Beside) -> Rows:
    """Whole patterns, in single precision at least; differentiable.

    With a sink a row sums to what the sink leaves.
    """
    windows, _, length, _ = query.shape
    tile = Tile(slice(0, windows), slice(0, length))  # all keys come up to the last query
    scores = tile_scores(query, key, scale, beside, tile)
    return (scores - normaliser_of(scores, beside)[..., None]).exp()


def seen_keys(query: Heads, beside: Beside) -> Bool[Tensor, "_ _ query key"]:
    """Where some query of a head looks at all; one for all windows and heads where those are 1."""
    if beside.bias is not None:
        return beside.bias > -torch.inf
    length = query.shape[2]
    return torch.ones(1, 1, length, length, dtype=torch.bool, device=query.device).tril()


def normaliser_of(
    scores: Float[Tensor, "window head query key"], beside: Beside
) -> Float[Tensor, "window head query"]:
    """The log-sum-exp of every row, that of a sink included."""
    found = scores.logsumexp(-1)
    if beside.sink is None:
        return found
    return torch.logaddexp(found, beside.sink.to(found)[:, None])


def tile_scores(query: Heads, key: Keys, scale: float, beside: Beside, tile: Tile) -> Rows:
    """Grouped query heads meet their key head by shape: it is not copied for each of them."""
    query = _exact(query[tile.windows, :, tile.queries]) * scale
    key = _exact(key[tile.windows, :, : tile.keys])
    windows, heads, queries, width = query.shape
    grouped = query.reshape(windows, key.shape[1], -1, width)
    scores = (grouped @ key.transpose(-1, -2)).view(windows, heads, queries, tile.keys)
    scores = _capped(scores, beside.cap)
    if beside.bias is None:
        scores[..., tile.queries] += _later(queries, scores.device)
    else:
        scores += _of(beside.bias, tile.windows)[:, :, tile.queries, : tile.keys]
    return scores


def _picked(scores: Scores, look: Picked) -> Rows:
    """Rows of queries that do not follow each other."""
    device = scores.query.device
    queries = torch.from_numpy(look.queries).to(device)
    # torch's index_select would first copy all of the queries, which do not lie together
    query = _exact(scores.query[look.window][:, queries]) * scores.scale
    key = _exact(scores.key[look.window, :, : look.keys])
    grouped = query.reshape(key.shape[0], -1, query.shape[-1])
    rows = (grouped @ key.transpose(-1, -2)).view(len(query), len(queries), look.keys)
    rows = _capped(rows, scores.beside.cap)
    rows.sub_(scores.normaliser[look.window][:, queries, None])
    if scores.beside.bias is None:
        # of the keys after the first query some come too late
        first = int(look.queries[0]) + 1
        later = torch.arange(first, look.keys, device=device) > queries[:, None]
        rows[..., first:].masked_fill_(later, -torch.inf)
    else:
        bias = _of(scores.beside.bias, slice(look.window, look.window + 1))[0]
        rows += bias[:, queries, : look.keys]
    return rows[None]


def _cells(scores: Scores, look: Cells) -> Float[Tensor, "cell head"]:
    """A product of one query and one key for each cell and head."""
    query, key = (x[look.window].transpose(0, 1) for x in (scores.query, scores.key))
    normaliser = scores.normaliser[look.window].T
    bias = scores.beside.bias
    found = []
    for start in range(0, len(look.queries), CELLS_AT_ONCE):
        part = slice(start, start + CELLS_AT_ONCE)
        queries, keys = (
            torch.from_numpy(x[part]).to(query.device) for x in (look.queries, look.keys)
        )
        one, other = _exact(query.index_select(0, queries)), _exact(key.index_select(0, keys))
        # grouped query heads meet their key head
        count, groups, width = other.shape
        products = one.view(count, groups, -1, width) * other[:, :, None]
        dot = _capped(products.sum(-1).flatten(1).mul_(scores.scale), scores.beside.cap)
        if bias is not None:
            dot += _of(bias, slice(look.window, look.window + 1))[0][:, queries, keys].T
        found.append(dot.sub_(normaliser.index_select(0, queries)))
    return torch.cat(found)


def _selves(scores: Scores, look: Selves) -> tuple[Float[Tensor, "query head"], Tensor | None]:
    cells = _cells(scores, Cells(look.window, look.queries, look.queries))
    if scores.value is None:
        return cells, None
    queries = torch.from_numpy(look.queries).to(scores.value.device)
    return cells, scores.value[look.window][:, queries].transpose(0, 1).flatten(1)


def _capped(scores: Tensor, cap: float | None) -> Tensor:
    return scores if cap is None else torch.tanh(scores / cap) * cap


def _exact(values: Tensor) -> Tensor:
    """In single precision at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _of(bias: Float[Tensor, "_ _ query key"], windows: slice) -> Float[Tensor, "_ _ query key"]:
    """The part of some windows; all of it where every window has the same."""
    return bias if len(bias) == 1 else bias[windows]


@lru_cache(maxsize=4)
def _later(queries: int, device: torch.device) -> Float[Tensor, "query query"]:
    """−∞ where a key comes after its query, else 0."""
    return torch.full((queries, queries), -torch.inf, device=device).triu(1)
