"""What a rule explains on documents that it has never seen, feature by feature and kind by kind."""

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
from headscope.studies.explain.softmax import Fitted, Target, divergences, log_rule, newton

BIT = log(2)


@dataclass(frozen=True, eq=False)
class Judge:
    """The rows that judge, and the documents that they are of."""

    attention: Float[Tensor, "row key"]
    seen: Tensor
    document: Int[ndarray, " row"]
    """Each row's document, counted from 0."""
    seed: int = 0

    def by_document(self, logits: Float[Tensor, "row key"]) -> Float[ndarray, " document"]:
        """KL(head ‖ rule) in bits, summed over the rows of each document."""
        return self._sum(divergences(self.attention, log_rule(logits, self.seen)))

    def uniform(self) -> Float[ndarray, " document"]:
        """KL(head ‖ uniform) in bits, likewise."""
        return self.by_document(torch.zeros_like(self.attention))

    def most(
        self, logits: Float[Tensor, "row key"], count: int
    ) -> list[tuple[int, int, int, float]]:
        """The rows with the largest remainder: row, the head's first key, the rule's, and bits."""
        logs = log_rule(logits, self.seen)
        bits = divergences(self.attention, logs) / BIT
        best = bits.topk(min(count, len(bits)))
        return [
            (row, int(self.attention[row].argmax()), int(logs[row].argmax()), value)
            for row, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @property
    def rows(self) -> Float[ndarray, " document"]:
        """How many rows each document has."""
        return np.bincount(self.document).astype(float)

    def _sum(self, nats: Float[Tensor, " row"]) -> ndarray:
        return np.bincount(self.document, nats.double().numpy() / BIT)


@dataclass(frozen=True)
class Share:
    """A share of the bits between uniform and the head, with its 95 % interval over documents."""

    value: float
    low: float
    high: float


def explained(rest: Float[ndarray, " document"], uniform: Float[ndarray, " document"]) -> Share:
    """1 − KL(head ‖ rule) / KL(head ‖ uniform), with its interval over documents.

    1 for a rule that gives the head's own attention, 0 for one that knows no more than uniform
    attention, below 0 for a worse one.

    >>> explained(np.array([1.0, 1.0]), np.array([4.0, 4.0])).value
    0.75
    """
    total = float(uniform.sum())
    if total <= 0:
        return Share(float("nan"), float("nan"), float("nan"))
    draws = resample(len(rest), np.random.default_rng(0))
    low, high = interval(rest, uniform, draws)
    return Share(1 - float(rest.sum()) / total, 1 - float(high), 1 - float(low))


def unique_bits(
    judge: Judge, values: Float[Tensor, "term row key"], fitted: Fitted
) -> list[Float[ndarray, " document"]]:
    """For each feature, the bits that are lost without it, summed over the rows of each document.

    The other weights move to where the objective's curvature says that they would be refitted
    (the "optimal brain surgeon" of Hassibi & Stork 1993), which takes no further fit.
    """
    whole = judge.by_document(torch.tensordot(fitted.weights, values, 1))
    lost = []
    for place in range(len(fitted.weights)):
        own = fitted.inverse[:, place]
        weights = fitted.weights - own * fitted.weights[place] / own[place]
        weights[place] = 0
        lost.append(judge.by_document(torch.tensordot(weights, values, 1)) - whole)
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
    found, count = {}, len(judge.attention)
    own = values[:, len(values[0]) - count :] if len(values) else values
    before = float(judge.uniform().sum())
    for last, kind in enumerate(order):
        if kind not in kinds:
            continue
        kept = [i for i, each in enumerate(kinds) if each in order[: last + 1]]
        part = weights[kept]
        if len(kept) < len(kinds):
            fit = values[kept, : len(target)]
            part = newton(target, fit, part, steps=3, tolerance=1e-3).weights
        now = float(judge.by_document(torch.tensordot(part, own[kept], 1)).sum())
        found[kind], before = before - now, now
    return found
