"""Bits that a rule explains on documents never seen before, by feature and by kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.bootstrap import interval, resample
from headscope.studies.explain.softmax import Fitted, Target, kl_divergences, log_rule, newton

BIT = log(2)


@dataclass(frozen=True, eq=False)
class Judge:
    """The rows that judge, and the documents that they are of."""

    attention: Float[Tensor, "row key"]
    seen: Tensor
    document: Int[ndarray, " row"]
    """Each row's document, counted from 0."""

    def by_document(self, logits: Float[Tensor, "row key"]) -> Float[ndarray, " document"]:
        """KL(head ‖ rule) in bits, summed over the rows of each document."""
        nats = kl_divergences(self.attention, log_rule(logits, self.seen))
        return np.bincount(self.document, nats.double().numpy() / BIT)

    def uniform(self) -> Float[ndarray, " document"]:
        """KL(head ‖ uniform) in bits, likewise."""
        return self.by_document(torch.zeros_like(self.attention))

    def largest_remainders(
        self, logits: Float[Tensor, "row key"], count: int
    ) -> list[tuple[int, int, int, float]]:
        """The rows with the largest remainder: row, the head's first key, the rule's, and bits."""
        logs = log_rule(logits, self.seen)
        bits = kl_divergences(self.attention, logs) / BIT
        best = bits.topk(min(count, len(bits)))
        return [
            (row, int(self.attention[row].argmax()), int(logs[row].argmax()), value)
            for row, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class Share:
    """A share of the bits between uniform and the head, with its 95 % interval over documents."""

    value: float
    low: float
    high: float


def explained(
    remainder: Float[ndarray, " document"], uniform: Float[ndarray, " document"]
) -> Share:
    """1 − KL(head ‖ rule) / KL(head ‖ uniform), with its interval over documents.

    1 for a rule that gives the head's own attention, 0 for one that knows no more than uniform
    attention, below 0 for a worse one.

    >>> explained(np.array([1.0, 1.0]), np.array([4.0, 4.0])).value
    0.75
    """
    total = float(uniform.sum())
    if total <= 0:
        return Share(float("nan"), float("nan"), float("nan"))
    draws = resample(len(remainder), np.random.default_rng(0))
    low, high = interval(remainder, uniform, draws)
    return Share(1 - float(remainder.sum()) / total, 1 - float(high), 1 - float(low))


def unique_bits(
    judge: Judge, values: Float[Tensor, "term row key"], fitted: Fitted
) -> list[Float[ndarray, " document"]]:
    """For each feature, the bits that are lost without it, summed over the rows of each document.

    The other weights move to where the objective's curvature says that they would be refitted
    (the "optimal brain surgeon" of Hassibi & Stork 1993), which takes no further fit.
    """
    bits_of_rule = judge.by_document(torch.tensordot(fitted.weights, values, 1))
    lost = []
    for index in range(len(fitted.weights)):
        inverse_column = fitted.inverse[:, index]
        weights = fitted.weights - inverse_column * fitted.weights[index] / inverse_column[index]
        weights[index] = 0
        lost.append(judge.by_document(torch.tensordot(weights, values, 1)) - bits_of_rule)
    return lost


def bits_by_kind(
    judge: Judge,
    target: Target,
    values: Float[Tensor, "term row key"],
    weights: Float[Tensor, " term"],
    kinds: Sequence[str],
    order: Sequence[str],
) -> dict[str, float]:
    """The bits that each kind of feature adds once all kinds before it are there, in this order.

    What a simpler kind explains is never counted for a richer one. Bits are summed over the rows
    that judge; those of the kinds add up to the rule's.

    Args:
        judge: the rows that judge, which are the last of `values`.
        target: the rows of the fit, which are the first.
        values: the rule's features.
        weights: of the whole rule.
        kinds: each feature's.
        order: the kinds, the simplest first.
    """
    bits, count = {}, len(judge.attention)
    judged_values = values[:, len(values[0]) - count :] if len(values) else values
    before = float(judge.uniform().sum())
    for last, kind in enumerate(order):
        if kind not in kinds:
            continue
        features = [
            i for i, kind_of_feature in enumerate(kinds) if kind_of_feature in order[: last + 1]
        ]
        part = weights[features]
        if len(features) < len(kinds):
            fit = values[features, : len(target)]
            part = newton(target, fit, part, steps=3, tolerance=1e-3).weights
        now = float(judge.by_document(torch.tensordot(part, judged_values[features], 1)).sum())
        bits[kind], before = before - now, now
    return bits
