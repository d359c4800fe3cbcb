"""Scores of an explanation's patterns against a head's, with and without the first token.

Most heads of a causal model put most of their attention on the first token. An explanation that
names only this token then has high scores, so each score is also computed on the other keys alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.studies.study import table_columns

SCORES = table_columns("""
    explained | ≤ 1 | 1 − KL(head ‖ explanation) ÷ KL(head ‖ uniform), on documents used neither to
        fit nor to choose
    iou | [0, 1] | intersection over union: sum of the smaller attention of each cell ÷ sum of the
        larger one
    correlation | [−1, 1] | Pearson's correlation of attention within rows; 0 for uniform attention
    explained_rest, iou_rest, correlation_rest | as without `_rest` | the same without the first
        token: rows are renormalised, and weighted by the head's attention on the other keys
""")
"""Columns of scores."""
_NO_MASS = 1e-6
"""Attention on the other keys below which an explanation has no pattern there."""


def log_pattern(
    logits: Float[Tensor, "*head row key"], seen: Bool[Tensor, "row key"]
) -> Float[Tensor, "*head row key"]:
    """Logarithm of the model's pattern; −∞ at keys that are not seen."""
    return logits.masked_fill(~seen, -torch.inf).log_softmax(-1)


def kl_divergences(
    attention: Float[Tensor, "*#head row key"], logs: Float[Tensor, "*#head row key"]
) -> Float[Tensor, "*_ row"]:
    """KL(attention ‖ pattern) of each row in nats, ≥ 0; one model may serve all heads.

    >>> even = torch.full((1, 2), 0.5)
    >>> kl_divergences(even, even.log()).tolist()
    [0.0]
    """
    negative_entropy = -torch.special.entr(attention)
    cross = torch.where(attention > 0, attention * logs, 0)
    divergence: Tensor = (negative_entropy - cross).sum(-1)
    return divergence


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of an explanation's patterns with a head's, over queries; NaN without any.

    Each is 1 for equal patterns. `explained` and `correlation` are 0 for uniform attention.
    """

    explained: float
    """1 − Σ KL(head ‖ explanation) ÷ Σ KL(head ‖ uniform), ≤ 1."""
    iou: float
    """Intersection over union: Σ of the smaller attention ÷ Σ of the larger one, in [0, 1]."""
    correlation: float
    """Pearson's correlation of attention within rows, −1 to 1; 0 if a pattern is uniform."""


@dataclass(frozen=True, kw_only=True)
class PatternScores:
    """Scores of an explanation of one head."""

    all_keys: Agreement
    without_first: Agreement
    """Agreement on all keys but the first token. Both patterns are renormalised without it, and a
    query has the weight of the head's attention on the other keys. Queries with fewer than two
    other keys are left out."""

    def columns(self) -> dict[str, float]:
        """The scores by column, those on all keys first."""
        return {
            "explained": self.all_keys.explained,
            "iou": self.all_keys.iou,
            "correlation": self.all_keys.correlation,
            "explained_rest": self.without_first.explained,
            "iou_rest": self.without_first.iou,
            "correlation_rest": self.without_first.correlation,
        }


@dataclass(frozen=True, eq=False)
class PatternPair:
    """Patterns of a head and of its explanation on the same queries."""

    attention: Float[Tensor, "row key"]
    """The head's; each row sums to 1."""
    pattern: Float[Tensor, "row key"]
    """The explanation's; each row sums to 1, or is 0 if the explanation has none there."""
    seen: Bool[Tensor, "row key"]
    """Mask of the keys that each query sees."""

    def agreement(self, weight: Float[Tensor, " row"], smoothing: float) -> Agreement:
        """Agreement with a weight of each query; see `scores`."""
        # a row without a pattern is explained by even attention
        keys = self.seen.sum(-1, keepdim=True).clamp_min(1)
        uniform = self.seen / keys
        mixed = (1 - smoothing) * self.pattern + smoothing * uniform
        has_pattern = self.pattern.sum(-1, keepdim=True) > 0
        explanation = torch.where(has_pattern, mixed, uniform)
        unexplained = kl_divergences(self.attention, explanation.log())
        total = kl_divergences(self.attention, uniform.log())
        # overlap of both patterns, as of two sets
        intersection = torch.minimum(self.attention, self.pattern).sum(-1)
        union = torch.maximum(self.attention, self.pattern).sum(-1)
        return Agreement(
            explained=1 - _ratio(_weighed(unexplained, weight), _weighed(total, weight)),
            iou=_ratio(_weighed(intersection, weight), _weighed(union, weight)),
            correlation=self._correlation(weight),
        )

    def without_first(self) -> PatternPair:
        """Both patterns on the other keys, renormalised; 0 where nothing is left."""
        seen = self.seen.clone()
        seen[:, 0] = False
        return PatternPair(
            attention=_renormalised(self.attention, seen, least=0.0),
            pattern=_renormalised(self.pattern, seen, least=_NO_MASS),
            seen=seen,
        )

    def _correlation(self, weight: Tensor) -> float:
        of_head = self._deviations(self.attention)
        of_explanation = self._deviations(self.pattern)
        covariance = _weighed((of_head * of_explanation).sum(-1), weight)
        variance = _weighed((of_head**2).sum(-1), weight)
        explanation_variance = _weighed((of_explanation**2).sum(-1), weight)
        scale = sqrt(variance * explanation_variance)
        return covariance / scale if scale > 0 else 0.0

    def _deviations(self, pattern: Float[Tensor, "row key"]) -> Float[Tensor, "row key"]:
        """Attention minus the mean over the keys that the query sees."""
        keys = self.seen.sum(-1, keepdim=True).clamp_min(1)
        mean = pattern.sum(-1, keepdim=True) / keys
        return (pattern - mean) * self.seen


def scores(pair: PatternPair, *, smoothing: float = 0.0) -> PatternScores:
    """Scores of an explanation on all keys, and on all but the first token.

    Args:
        pair: patterns on queries that did not fit the explanation.
        smoothing: share of uniform attention that is mixed into the explanation for `explained`,
            whose divergence is infinite where an explanation has no attention and the head has.
    """
    rows = len(pair.attention)
    every_query = torch.ones(rows)
    other_keys = pair.seen[:, 1:].sum(-1)
    rest_mass = pair.attention[:, 1:].sum(-1)
    rest_weight = rest_mass * (other_keys > 1)
    return PatternScores(
        all_keys=pair.agreement(every_query, smoothing),
        without_first=pair.without_first().agreement(rest_weight, smoothing),
    )


def _renormalised(
    pattern: Float[Tensor, "row key"], seen: Bool[Tensor, "row key"], *, least: float
) -> Float[Tensor, "row key"]:
    """Attention on the seen keys, so that each row sums to 1; 0 for rows with at most `least`."""
    remaining = pattern * seen
    mass = remaining.sum(-1, keepdim=True)
    return torch.where(mass > least, remaining / mass, 0)


def _weighed(values: Float[Tensor, " row"], weight: Float[Tensor, " row"]) -> float:
    return float((values.double() * weight).sum())


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0 else float("nan")
