"""HeadVis' eleven metrics: the numbers of each row of attention, which maxima are made of as well,
and their running sums over all rows that are read.

The first six have the names and the definitions of Neuronpedia's `compute-head-metrics.py`, which
fills the pages of its heads (hijohnnylin/neuronpedia ebb8426). HeadVis itself takes
`induction_score` over every query and counts all attention.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

HIGH = 0.1
"""Attention from which on a key beyond the first token is said to be attended to strongly; ours."""
EVEN = 1e-4
"""Nats: scores of a row that differ by less than this are all the same but for rounding."""
LEAST_INDUCTION = 0.01
"""Attention below it is none of `induction_score`, as for Neuronpedia."""
FEWEST = 50
"""Queries of an entropy over tokens, which cannot be above the logarithm of their number; as many
as a relation takes."""
METRICS = {
    "self_attention_score": "Mean attention of a token to itself: the mean of the diagonal.",
    "prev_token_score": "Mean attention to the token before: the mean of the subdiagonal.",
    "pattern_entropy": "Mean Shannon entropy of a query's attention, in nats.",
    "qk_distance": "Mean |q − k| in tokens, weighted by attention.",
    "qk_distance_variance": "Variance of |q − k|, weighted by attention.",
    "induction_score": (
        "Attention to whatever followed the same token before, mean over queries whose token came "
        f"before; less than {LEAST_INDUCTION:g} on a key counts as none."
    ),
    "logit_std": "Standard deviation of a query's scores before the softmax, mean over queries.",
    "top_logit_margin": "Largest minus second score before the softmax, mean over queries.",
    "logit_z_score": "(largest − mean) ÷ deviation of a query's scores, mean over queries.",
    "query_token_entropy": (
        f"Entropy in nats over the tokens of queries with {HIGH:g} of attention or more on a key "
        f"beyond the first token, where there are {FEWEST} such queries."
    ),
    "key_token_entropy": "The same over the tokens that these queries attend to most.",
}
"""Each with the words of its tooltip."""
_MEANS = {
    "self_attention_score": "own",
    "prev_token_score": "previous",
    "pattern_entropy": "entropy",
    "induction_score": "induction",
    "logit_std": "spread",
    "top_logit_margin": "margin",
    "logit_z_score": "z",
}
"""Metrics that are means over those queries that have the number."""

_Rows = Float[Tensor, "head query key"]
_PerRow = Float[Tensor, "head query"]


class RowNumbers(NamedTuple):
    """Numbers of each row of each head; NaN where a row has no such number."""

    own: _PerRow
    """Attention to itself."""
    previous: _PerRow
    """Attention to the token before; the first row has none."""
    entropy: _PerRow
    """Shannon's, in nats."""
    mass: _PerRow
    """What the row sums to: 1, or what a learned sink leaves of it."""
    distance: _PerRow
    """The sum of |q − k| times attention."""
    square: _PerRow
    """The sum of |q − k|² times attention."""
    induction: _PerRow
    """Attention to tokens just behind earlier copies of the query's token, where there are any."""
    spread: _PerRow
    """Standard deviation of the scores of the keys that the query sees; of two or more keys."""
    margin: _PerRow
    """The largest score minus the second."""
    z: _PerRow
    """(largest − mean) ÷ standard deviation of the scores; none where they are all the same."""
    best: _PerRow
    """Attention to the strongest key, the first token left out; not above 0 where there is none."""
    key: Int[Tensor, "head query"]
    """Which key that is."""
    largest: _PerRow
    """The same without the query itself."""


def row_numbers(logarithms: _Rows, tokens: Int[Tensor, " position"], first: int) -> RowNumbers:
    """Compute the numbers of some rows of one window.

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
    behind = _behind_same(tokens, query, key)
    followed = attention.masked_fill(~behind | (attention < LEAST_INDUCTION), 0.0).sum(-1)
    return RowNumbers(
        own=attention.gather(2, _column(attention, query))[..., 0],
        previous=torch.where(query > 0, before, none),
        entropy=-(attention * known).sum(-1),
        mass=attention.sum(-1),
        distance=(attention * away).sum(-1),
        square=(attention * away**2).sum(-1),
        induction=torch.where(behind.any(-1), followed, none),
        **_scores(logarithms, known, seen, none),
        best=best.values,
        key=best.indices,
        largest=beyond.masked_fill(itself, -1.0).amax(-1),
    )


class MetricSums:
    """Running sums of some heads, window after window.

    Args:
        heads: how many.
        tokens: how many different tokens the text has.
    """

    def __init__(self, heads: int, tokens: int) -> None:
        names = {*_MEANS.values(), "mass", "distance", "square"}
        self._totals = {name: np.zeros(heads) for name in names}
        self._counts = {name: np.zeros(heads, np.int64) for name in names}
        self._query_tokens = np.zeros((heads, tokens), np.int32)
        self._key_tokens = np.zeros((heads, tokens), np.int32)

    def add(
        self, heads: slice, rows: RowNumbers, kinds: Int[ndarray, " position"], first: int
    ) -> None:
        """Add some rows of a window.

        Args:
            heads: whose they are.
            rows: what they show.
            kinds: which of the text's different tokens stands at each position.
            first: the position of the first query.
        """
        for name, total in self._totals.items():
            values = getattr(rows, name).double().cpu().numpy()
            total[heads] += np.nansum(values, 1)
            self._counts[name][heads] += (~np.isnan(values)).sum(1)
        high = (rows.best >= HIGH).cpu().numpy()
        head, query = high.nonzero()
        key = rows.key.cpu().numpy()[head, query]
        np.add.at(self._query_tokens, (heads.start + head, kinds[first + query]), 1)
        np.add.at(self._key_tokens, (heads.start + head, kinds[key]), 1)

    def metrics(self, head: int) -> dict[str, float]:
        """The metrics of one head; what no query of it has is left out."""
        total = {name: values[head] for name, values in self._totals.items()}
        metrics = {}
        for metric, name in _MEANS.items():
            count = self._counts[name][head]
            metrics[metric] = total[name] / count if count else np.nan
        if total["mass"]:
            mean = total["distance"] / total["mass"]
            metrics["qk_distance"] = mean
            metrics["qk_distance_variance"] = total["square"] / total["mass"] - mean**2
        metrics["query_token_entropy"] = _entropy(self._query_tokens[head])
        metrics["key_token_entropy"] = _entropy(self._key_tokens[head])
        return {name: float(metrics[name]) for name in METRICS if not np.isnan(metrics[name])}


def _scores(
    logarithms: _Rows, known: _Rows, seen: Bool[Tensor, "head query key"], none: _PerRow
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
    """True where the key before is an earlier place of the query's own token."""
    same = tokens[query][:, None] == tokens[(key - 1).clamp_min(0)]
    return same & (key > 0) & (key <= query[:, None])


def _column(attention: _Rows, key: Int[Tensor, " query"]) -> Int[Tensor, "head query 1"]:
    return key.clamp_min(0)[None, :, None].expand(len(attention), -1, 1)


def _entropy(counts: Int[ndarray, " token"]) -> float:
    """In nats; NaN of too few."""
    if counts.sum() < FEWEST:
        return np.nan
    shares: Float[ndarray, " token"] = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
