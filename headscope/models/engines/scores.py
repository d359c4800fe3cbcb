"""Rows of attention from queries and keys: scores minus each row's log-sum-exp.

They are made a few rows at a time and are gone when the next come, so that no pattern is ever kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.models.engines.engine import (
    Entries,
    QueryRows,
    Request,
    Rows,
    SelfEntries,
    Tile,
)

CELLS_AT_ONCE = 512
"""Single cells whose queries and keys are gathered at once, so that they stay in a cache."""

Heads = Float[Tensor, "batch _ position width"]
Keys = Float[Tensor, "batch _ seen width"]
"""There may be more keys than queries."""
SeenValues = Float[Tensor, "batch _ seen _"]
"""Values at the keys, in some layouts of another width than queries and keys."""
Values = Float[Tensor, "batch _ position _"]
"""What heads read at the queries, as wide as the values."""
RowSums = Float[Tensor, "batch head position"]


class ScoreTerms(NamedTuple):
    """Terms of a layer's scores beyond q·k·scale over all earlier positions."""

    bias: Float[Tensor, "_ _ query key"] | None = None
    """Added to the scores, −∞ if a query does not look; every window's and head's where those
    axes are 1. None: a query sees itself and whatever comes before it, with no bias."""
    cap: float | None = None
    """Scores s become cap · tanh(s / cap) (Gemma 2)."""
    sink: Float[Tensor, " head"] | None = None
    """A score that takes its share of every row and belongs to no token (GPT-OSS)."""
    sees_future: bool = False
    """Queries see keys after them too; then there is a bias."""


PLAIN = ScoreTerms()


class Scores(NamedTuple):
    """Parts of a layer's rows of scores, and each row's log-sum-exp, that of a sink included."""

    query: Heads
    key: Keys
    scale: float
    normaliser: RowSums
    terms: ScoreTerms = PLAIN
    value: SeenValues | None = None
    """Values; None if nobody reads them."""


def log_attention(scores: Scores, request: Request) -> Any:
    """The logarithms of attention there, −∞ if a query does not look; in single precision.

    Exponentials of a row sum to 1, or with a sink to what the sink leaves. `SelfEntries` come with
    the values there.
    """
    # single cells, each with the query's own value if the layer has one
    if isinstance(request, SelfEntries):
        cells = _entries(scores, request.entries)
        if scores.value is None:
            return cells, None
        queries = request.entries.tensor("queries", scores.value.device)
        values = scores.value[request.window][:, queries]
        return cells, values.transpose(0, 1).flatten(1)
    if isinstance(request, Entries):
        return _entries(scores, request)
    if isinstance(request, QueryRows):
        device = scores.query.device
        row_queries = request.tensor("queries", device)
        # torch's index_select would first copy all of the queries, which do not lie together
        query = _exact(scores.query[request.window][:, row_queries]) * scores.scale
        key = _exact(scores.key[request.window, :, : request.keys])
        read_rows = capped(_products(query, key), scores.terms.cap)
        normaliser = scores.normaliser[request.window]
        read_rows.sub_(normaliser[:, row_queries, None])
        if scores.terms.bias is None:
            # of the keys after the first query some come too late
            first = int(request.queries[0]) + 1
            keys = torch.arange(first, request.keys, device=device)
            read_rows[..., first:].masked_fill_(keys > row_queries[:, None], -torch.inf)
        else:
            bias = _of_window(scores.terms.bias, request.window)
            read_rows += bias[:, row_queries, : request.keys]
        return read_rows[None]
    # whole rows of a tile
    rows = scores.normaliser[request.windows, :, request.queries, None]
    return tile_scores(scores.query, scores.key, scores.scale, scores.terms, request).sub_(rows)


def pattern(query: Heads, key: Keys, scale: float, terms: ScoreTerms) -> Rows:
    """Patterns without values below 0, in single precision at least; differentiable.

    With a sink a row sums to what the sink leaves.
    """
    windows, _, length, _ = query.shape
    tile = Tile(slice(0, windows), slice(0, length))  # all keys come up to the last query
    rows, _ = softmax_rows(tile_scores(query, key, scale, terms, tile), terms)
    return rows


def softmax_rows(
    scores: Float[Tensor, "window head query key"], terms: ScoreTerms
) -> tuple[Rows, Float[Tensor, "window head query"]]:
    """The softmax of every row, and its log-sum-exp, that of a sink included in both."""
    rows = scores.softmax(-1)
    # of the largest score exp(score − normaliser) is known: torch's logsumexp takes four times as
    # long as its softmax
    normaliser = scores.amax(-1) - rows.amax(-1).log()
    if terms.sink is None:
        return rows, normaliser
    with_sink = torch.logaddexp(normaliser, terms.sink.to(normaliser)[:, None])
    share = (normaliser - with_sink).exp()
    return rows * share[..., None], with_sink


def tile_scores(query: Heads, key: Keys, scale: float, terms: ScoreTerms, tile: Tile) -> Rows:
    """Scores of a tile, −∞ if a query does not look."""
    query = _exact(query[tile.windows, :, tile.queries]) * scale
    key = _exact(key[tile.windows, :, : tile.keys])
    scores = capped(_products(query, key), terms.cap)
    if terms.bias is None:
        scores[..., tile.queries] += _causal_mask(query.shape[2], scores.device)
    else:
        bias = _of(terms.bias, tile.windows)
        scores += bias[:, :, tile.queries, : tile.keys]
    return scores


def _products(
    query: Float[Tensor, "*window head query width"], key: Float[Tensor, "*window group key width"]
) -> Float[Tensor, "*window head query key"]:
    """Grouped query heads meet their key head by shape: it is not copied for each of them."""
    *windows, heads, queries, width = query.shape
    *_, groups, keys, _ = key.shape
    grouped = query.reshape(*windows, groups, -1, width)
    products = grouped @ key.transpose(-1, -2)
    return products.view(*windows, heads, queries, keys)


def _entries(scores: Scores, request: Entries) -> Float[Tensor, "cell head"]:
    """A product of one query and one key for each cell and head."""
    # cell by cell, some at a time, as their products are kept in single precision
    query = scores.query[request.window].transpose(0, 1)
    key = scores.key[request.window].transpose(0, 1)
    normaliser = scores.normaliser[request.window].T
    all_queries = request.tensor("queries", query.device)
    all_keys = request.tensor("keys", query.device)
    parts = []
    for start in range(0, len(all_queries), CELLS_AT_ONCE):
        queries = all_queries[start : start + CELLS_AT_ONCE]
        keys = all_keys[start : start + CELLS_AT_ONCE]
        query_rows = _exact(query.index_select(0, queries))
        key_rows = _exact(key.index_select(0, keys))
        # grouped query heads meet their key head
        count, groups, width = key_rows.shape
        products = query_rows.view(count, groups, -1, width) * key_rows[:, :, None]
        scaled = products.sum(-1).flatten(1).mul_(scores.scale)
        cells = capped(scaled, scores.terms.cap)
        if scores.terms.bias is not None:
            bias = _of_window(scores.terms.bias, request.window)
            cells += bias[:, queries, keys].T
        parts.append(cells.sub_(normaliser.index_select(0, queries)))
    return torch.cat(parts)


def capped(scores: Tensor, cap: float | None) -> Tensor:
    """Scores s as cap · tanh(s / cap)."""
    return scores if cap is None else torch.tanh(scores / cap) * cap


def _exact(values: Tensor) -> Tensor:
    """The values in single precision at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _of(bias: Float[Tensor, "_ _ query key"], windows: slice) -> Float[Tensor, "_ _ query key"]:
    """The part of some windows; all of it where every window has the same."""
    return bias if len(bias) == 1 else bias[windows]


def _of_window(bias: Float[Tensor, "_ _ query key"], window: int) -> Float[Tensor, "_ query key"]:
    return _of(bias, slice(window, window + 1))[0]


@lru_cache(maxsize=4)
def _causal_mask(queries: int, device: torch.device) -> Float[Tensor, "query query"]:
    """−∞ if a key comes after its query, else 0."""
    return torch.full((queries, queries), -torch.inf, device=device).triu(1)
