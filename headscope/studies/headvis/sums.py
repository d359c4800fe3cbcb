"""HeadVis' eleven metrics: sums over all rows that are read, and what comes of them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.studies.headvis.rows import HIGH, Facts

FEWEST = 50
"""Queries of an entropy over tokens, which cannot be above the logarithm of their number; as many
as a relation takes."""
METRICS = {
    "self_attention_score": "Mean attention of a token to itself: the mean of the diagonal.",
    "previous_token_score": "Mean attention to the token before: the mean of the subdiagonal.",
    "pattern_entropy": "Mean Shannon entropy of a query's attention, in nats.",
    "qk_distance": "Mean |q − k| in tokens, weighted by attention.",
    "qk_distance_variance": "Variance of |q − k|, weighted by attention.",
    "induction_score": "Attention to whatever follows the same token elsewhere, mean over queries.",
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
    "previous_token_score": "previous",
    "pattern_entropy": "entropy",
    "induction_score": "induction",
    "logit_std": "spread",
    "top_logit_margin": "margin",
    "logit_z_score": "z",
}
"""Metrics that are means over those queries that have the number."""


class Sums:
    """What is added up of some heads, window after window.

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

    def add(self, heads: slice, rows: Facts, kinds: Int[ndarray, " position"], first: int) -> None:
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
        found = {}
        for metric, name in _MEANS.items():
            count = self._counts[name][head]
            found[metric] = total[name] / count if count else np.nan
        if total["mass"]:
            mean = total["distance"] / total["mass"]
            found["qk_distance"] = mean
            found["qk_distance_variance"] = total["square"] / total["mass"] - mean**2
        found["query_token_entropy"] = _entropy(self._query_tokens[head])
        found["key_token_entropy"] = _entropy(self._key_tokens[head])
        return {name: float(found[name]) for name in METRICS if not np.isnan(found[name])}


def _entropy(counts: Int[ndarray, " token"]) -> float:
    """In nats; NaN of too few."""
    if counts.sum() < FEWEST:
        return np.nan
    shares: Float[ndarray, " token"] = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
