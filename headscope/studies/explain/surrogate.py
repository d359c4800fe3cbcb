"""Surrogates as plain data: what a head is said to do, and the bits that it explains of the head on
documents never seen before, by feature and by kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.bootstrap import interval, resample
from headscope.studies.explain.catalogue import GATES
from headscope.studies.explain.content_term import Content
from headscope.studies.explain.feature import Feature
from headscope.studies.explain.places import CURVE, DISTANCE, LATER, LOG_DISTANCE
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


LISTED_FEATURES = 5
"""Features that a sentence names; the table has all."""
_SMOOTH = (LOG_DISTANCE, CURVE, DISTANCE)

Parts = tuple[tuple[Feature, int, float], ...]
"""Features with their gates and weights: all that a pattern takes."""


@dataclass(frozen=True)
class Weighed:
    """A feature in a rule."""

    feature: Feature
    gate: int
    """At which queries: a number among `GATES`, −1 for all."""
    weight: float
    """In logits: e to its power is by how much a key is preferred to one without the feature."""
    with_content: float
    """The weight beside the content term."""
    unique: Share
    """The share of the bits that is lost without it."""
    kind: str
    """What attention on it counts as in this layer."""

    @property
    def queries(self) -> str:
        """At which queries it speaks, in words; empty for all."""
        return GATES[self.gate] if self.gate >= 0 else ""

    @property
    def words(self) -> str:
        """What it says, with its weight."""
        at = f"on a {self.queries}: " if self.queries else ""
        return f"{at}{self.feature.words} ({self.weight:+.1f})"


@dataclass(frozen=True)
class Remainder:
    """A query of which a rule says little."""

    window: str
    text: str
    """What stands before it, the query in [[ ]]."""
    looks_at: str
    """The token that has most of the head's attention."""
    rule_says: str
    """The token that has most of the rule's."""
    bits: float
    """KL(head ‖ rule) there."""


@dataclass(frozen=True)
class PartialFit:
    """A part of a rule that was fitted again by itself."""

    features: int
    """How many it has."""
    explained: float
    """By these, on held-out documents."""
    parts: Parts


@dataclass(frozen=True)
class Surrogate:
    """The rule of one head, and how much of the head it explains on held-out documents."""

    layer: int
    head: int
    bits: float
    """Bits a query between uniform attention and the head's own."""
    terms: tuple[Weighed, ...]
    """The largest share of unique bits first."""
    position: Share
    """Explained by token 0 and distance alone."""
    explained: Share
    """By the rule's features, which come from the text alone."""
    content: Share | None
    """By features and the content term together; None without one."""
    remainders: tuple[Remainder, ...] = ()
    """The queries that the rule says least about, the worst first."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """The share that each kind of feature adds to the simpler ones."""
    smaller: tuple[PartialFit, ...] = ()
    """Rules of fewer features, each a part of the one before."""

    def parts(self, size: int | None = None) -> Parts:
        """The rule; of smaller ones that of so many features, where there is one."""
        parts_of_size = (item.parts for item in self.smaller if item.features == size)
        return next(parts_of_size, tuple((t.feature, t.gate, t.weight) for t in self.terms))

    def explained_by(self, size: int) -> float:
        """The share that the rule of at most so many features explains."""
        shares = (item.explained for item in self.smaller if item.features == size)
        return next(shares, self.explained.value)

    @property
    def sentence(self) -> str:
        """The features with the most unique bits, what is liked before what is avoided.

        Numbers are weights in logits; smooth ones are said as "nearer is better".
        """
        if not self.terms:
            return "nothing that the features name: even attention"
        first_terms = self.terms[:LISTED_FEATURES]
        smooth = [term for term in first_terms if term.feature in _SMOOTH]
        other = [term for term in first_terms if term.feature not in (*_SMOOTH, LATER)]
        liked = "; ".join(term.words for term in other if term.weight > 0)
        avoided = ", ".join(term.words for term in other if term.weight <= 0)
        later = not other and any(term.feature == LATER for term in first_terms)
        parts = ["token 0 the more, the later it is"] if later else []
        parts += [liked] if liked else []
        parts += [f"avoids {avoided}"] if avoided else []
        if smooth:
            parts.append("nearer is better" if smooth[0].weight < 0 else "farther is better")
        unlisted = len(self.terms) - len(first_terms)
        return "; ".join(parts) + (f"; {unlisted} more" if unlisted else "")


@dataclass(frozen=True)
class LayerSurrogates:
    """Everything that a layer needs to run on rules."""

    heads: tuple[Surrogate, ...]
    places: tuple[Parts, ...]
    """Each head's rule of token 0 and distance alone."""
    content: Content | None
