"""Agreement of two scores of the same heads: rank correlations and the first heads of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.stats import rankdata

from headscope.heads import head_name
from headscope.statistics.ratio import Z_95, estimate

TOP = 10
"""Most heads at the top of both rankings."""
DISAGREEING = 3
"""Heads that are named because their ranks differ most."""
PERMUTATIONS = 1_000
Scores = Float[ndarray, "layer head"]


@dataclass(frozen=True)
class Correlation:
    """A rank correlation in [−1, 1] with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Null:
    """Means over permutations of the heads within their layers, and a p value."""

    correlation: float
    """Rank correlation over all heads."""
    shared: float
    """Heads at the top of both."""
    p_value: float
    """Share of permutations, counting the scores as one, with as many heads at the top of both."""


def correlation_over_heads(first: Scores, second: Scores) -> Correlation:
    """Spearman's correlation over all heads, and its interval (Bonett and Wright 2000).

    >>> layers = np.arange(28.0).reshape(7, 4)
    >>> correlation_over_heads(layers, layers)
    Correlation(value=1.0, low=1.0, high=1.0)
    """
    value = float(rank_correlation(first.ravel(), second.ravel()))
    low, high = fisher_interval(value, first.size)
    return Correlation(value, low, high)


def fisher_interval(correlation: float, items: int) -> tuple[float, float]:
    """The 95 % interval of Spearman's correlation (Bonett and Wright 2000); NaN for ≤ 3 items.

    >>> low, high = fisher_interval(0.5, 28)
    >>> round(low, 3), round(high, 3)
    (0.133, 0.747)
    """
    if items <= 3:
        return float("nan"), float("nan")
    variance = (1 + correlation**2 / 2) / (items - 3)
    half_width = Z_95 * np.sqrt(variance)
    with np.errstate(divide="ignore"):  # a correlation of 1 has an infinite z
        centre = np.arctanh(correlation)
    low = np.tanh(centre - half_width)
    high = np.tanh(centre + half_width)
    return float(low), float(high)


def correlation_within_layers(first: Scores, second: Scores) -> Correlation:
    """The mean of the layers' rank correlations, and its bootstrap interval over layers.

    A layer in which a score is the same for all heads has no correlation and does not count.
    """
    of_layers = rank_correlation(first, second)
    known = of_layers[~np.isnan(of_layers)]
    mean = estimate(known, np.ones(len(known)), seed=0)
    return Correlation(mean.mean, mean.low, mean.high)


def rank_correlation(
    first: Float[ndarray, "*layer head"], second: Float[ndarray, "*layer head"]
) -> Float[ndarray, "*layer"]:
    """Spearman's correlation along the last axis; NaN where all values of a score are equal."""
    one = _centred_ranks(first)
    other = _centred_ranks(second)
    product = (one * other).sum(-1)
    squares = (one**2).sum(-1)
    other_squares = (other**2).sum(-1)
    length = np.sqrt(squares * other_squares)
    with np.errstate(invalid="ignore"):
        correlation = product / length
    return np.asarray(np.clip(correlation, -1, 1))


def _centred_ranks(values: Float[ndarray, "*layer head"]) -> Float[ndarray, "*layer head"]:
    ranks = rankdata(values, axis=-1)
    return np.asarray(ranks - ranks.mean(-1, keepdims=True))


def top_heads(heads: int) -> int:
    """Number of heads at the top of a ranking: ten, or a quarter if there are few."""
    return min(TOP, heads // 4)


def shared_heads(first: Scores, second: Scores) -> int:
    """Heads that are at the top of both rankings."""
    return int((_is_at_top(first) & _is_at_top(second)).sum())


def _is_at_top(values: Scores) -> Bool[ndarray, " item"]:
    """True for heads among the largest values; of equal ones, the first heads are."""
    order = np.argsort(-values.ravel(), kind="stable")
    is_at_top = np.zeros(values.size, bool)
    is_at_top[order[: top_heads(values.size)]] = True
    return is_at_top


def permuted_within_layers(first: Scores, second: Scores) -> Null:
    """The same numbers with the second scores' heads permuted within layers."""
    rng = np.random.default_rng(0)
    # ranks and top heads of both, computed once
    is_top = _is_at_top(first)
    is_second_top = _is_at_top(second)
    one = _centred_ranks(first.ravel())
    other = _centred_ranks(second.ravel())
    heads = np.arange(second.size).reshape(second.shape)
    shared = np.zeros(PERMUTATIONS)
    products = np.zeros(PERMUTATIONS)
    for number in range(PERMUTATIONS):
        # a permutation of heads permutes their ranks
        order = rng.permuted(heads, axis=1).ravel()
        shared[number] = (is_top & is_second_top[order]).sum()
        products[number] = one @ other[order]
    # a correlation is the product over the lengths
    length = np.sqrt((one @ one) * (other @ other))
    as_many = int((shared >= shared_heads(first, second)).sum())
    with np.errstate(invalid="ignore"):
        correlation = float(products.mean() / length)
    return Null(
        correlation=correlation,
        shared=float(shared.mean()),
        p_value=(1 + as_many) / (1 + PERMUTATIONS),
    )


def disagreeing_heads(first: Scores, second: Scores, layers: Sequence[int]) -> str:
    """The heads whose ranks differ most, each with its two scores.

    >>> first = np.array([[0.1, 0.2], [0.3, 0.4]])
    >>> second = np.array([[0.1, 0.2], [0.3, 0.05]])
    >>> disagreeing_heads(first, second, [3, 7])
    'L7H1 0.4 0.05; L3H0 0.1 0.1; L3H1 0.2 0.2'
    """
    difference = rankdata(first.ravel()) - rankdata(second.ravel())
    order = np.argsort(-np.abs(difference), kind="stable")
    texts = []
    for index in order[:DISAGREEING]:
        layer, head = divmod(int(index), first.shape[1])
        one = first[layer, head]
        other = second[layer, head]
        name = head_name(layers[layer], head)
        texts.append(f"{name} {one:.3g} {other:.3g}")
    return "; ".join(texts)
