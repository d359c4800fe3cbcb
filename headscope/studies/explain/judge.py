"""A layer's rules, and what each explains of its head on documents that did not fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.bootstrap import interval, resample
from headscope.studies.explain.catalogue import GATES
from headscope.studies.explain.feature import KINDS, Feature
from headscope.studies.explain.fit import LayerFit, Term, Texts, term_values
from headscope.studies.explain.places import PLACE_RULE
from headscope.studies.explain.softmax import (
    Fitted,
    Target,
    kl_divergences,
    log_rule,
    map_heads,
    newton,
)

BIT = log(2)
LISTED_FEATURES = 5
"""Number of features that a sentence names."""

Parts = tuple[tuple[Feature, int, float], ...]
"""Features with their gates and weights."""


class Share(NamedTuple):
    """A share of the bits between uniform attention and the head's, with its 95 % interval."""

    value: float
    low: float
    high: float


class WeightedFeature(NamedTuple):
    """A feature of a rule."""

    feature: Feature
    gate: int
    """Number in `GATES`; −1 for every query."""
    weight: float
    """In logits: a key with the feature is preferred by a factor of e^weight."""
    kind: str
    """Type that attention on it counts as in this layer."""
    unique: Share
    """Share of the bits that is lost without it."""

    @property
    def queries(self) -> str:
        """The kind of queries at which it applies; empty for every query."""
        return GATES[self.gate] if self.gate >= 0 else ""


@dataclass(frozen=True)
class HeadRule:
    """The rule of one head, and how much of the head it explains."""

    layer: int
    head: int
    bits: float
    """KL(head ‖ uniform) in bits per query."""
    terms: tuple[WeightedFeature, ...]
    """Features, the one with the most unique bits first."""
    position_parts: Parts
    """Rule of sinks and distance alone."""
    position: Share
    """Share that the rule of sinks and distance alone explains."""
    explained: Share
    """Share that the rule explains."""
    kinds: Mapping[str, float]
    """Share that each kind of feature adds to the simpler kinds."""

    @property
    def parts(self) -> Parts:
        """The rule's features with their gates and weights."""
        return tuple((term.feature, term.gate, term.weight) for term in self.terms)

    @property
    def sentence(self) -> str:
        """The features with the most unique bits, with their weights in logits."""
        if not self.terms:
            return "uniform attention"
        listed = [
            f"{term.feature.name}{f' on a {term.queries}' if term.queries else ''} "
            f"({term.weight:+.1f})"
            for term in self.terms[:LISTED_FEATURES]
        ]
        unlisted = len(self.terms) - len(listed)
        return "; ".join(listed) + (f"; {unlisted} more" if unlisted else "")


@dataclass(frozen=True, eq=False)
class Judge:
    """A head's attention on the rows that judge."""

    attention: Float[Tensor, "row key"]
    seen: Bool[Tensor, "row key"]
    document: Int[ndarray, " row"]
    """Each row's document, counted from 0."""

    def by_document(self, logits: Float[Tensor, "row key"]) -> Float[ndarray, " document"]:
        """KL(head ‖ rule) in bits, summed over the rows of each document."""
        nats = kl_divergences(self.attention, log_rule(logits, self.seen))
        return np.bincount(self.document, nats.double().numpy() / BIT)

    def uniform(self) -> Float[ndarray, " document"]:
        """KL(head ‖ uniform) in bits, summed over the rows of each document."""
        return self.by_document(torch.zeros_like(self.attention))


def explained(
    divergence: Float[ndarray, " document"], uniform: Float[ndarray, " document"]
) -> Share:
    """1 − KL(head ‖ rule) / KL(head ‖ uniform), with its interval over documents.

    1 if the rule equals the head, 0 if it is no better than uniform attention, below 0 if worse.

    >>> explained(np.array([1.0, 1.0]), np.array([4.0, 4.0])).value
    0.75
    """
    total = float(uniform.sum())
    if total <= 0:
        return Share(float("nan"), float("nan"), float("nan"))
    draws = resample(len(divergence), np.random.default_rng(0))
    low, high = interval(divergence, uniform, draws)
    return Share(1 - float(divergence.sum()) / total, 1 - float(high), 1 - float(low))


def unique_bits(
    judge: Judge, values: Float[Tensor, "term row key"], fitted: Fitted
) -> list[Float[ndarray, " document"]]:
    """Bits of each document that are lost without each feature.

    The other weights change as if refitted, by the objective's curvature (optimal brain surgeon,
    Hassibi and Stork 1993).
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
) -> dict[str, float]:
    """Bits that each kind of feature adds to the kinds before it in `KINDS`.

    Args:
        judge: the rows that judge, the last of `values`.
        target: the fitted rows, the first of `values`.
        values: the rule's features.
        weights: of the whole rule.
        kinds: kind of each feature.
    """
    bits, order = {}, [*KINDS, *sorted(set(kinds) - {*KINDS})]
    judged_values = values[:, values.shape[1] - len(judge.attention) :]
    before = float(judge.uniform().sum())
    for last, kind in enumerate(order):
        if kind not in kinds:
            continue
        features = [i for i, other in enumerate(kinds) if other in order[: last + 1]]
        part = weights[features]
        if len(features) < len(kinds):
            fit = values[features, : len(target)]
            part = newton(target, fit, part, steps=3, tolerance=1e-3).weights
        now = float(judge.by_document(torch.tensordot(part, judged_values[features], 1)).sum())
        bits[kind], before = before - now, now
    return bits


def explain_layer(
    texts: Texts,
    layer: int,
    attention: Float[Tensor, "head row key"],
    *,
    features: int,
    resting: frozenset[int] = frozenset(),
) -> list[HeadRule]:
    """Fit and judge the rules of a layer's heads.

    Args:
        texts: features of the text.
        layer: number of the layer.
        attention: of its heads at every row of the texts; rows sum to 1.
        features: largest number of features of a rule.
        resting: the layer's resting tokens; attention on them counts as sink.
    """
    rows, judged, selection = texts.rows, texts.judged, slice(texts.selection_rows)
    drafts = LayerFit(texts, attention, features).grow()
    number = {feature: i for i, feature in enumerate(texts.packed.features)}
    places = [Term(number[feature], -1) for feature in PLACE_RULE if feature in number]
    place_values = term_values(texts, places)  # the same for every head
    document = np.array([window.document for window in rows.windows])[rows.window.numpy()]
    document = np.unique(document[judged], return_inverse=True)[1]

    def parts(terms: Sequence[Term], weights: Tensor) -> Parts:
        weighed = zip(terms, weights.tolist(), strict=True)
        return tuple((texts.packed.features[t.feature], t.gate, weight) for t, weight in weighed)

    def explain(head: int) -> HeadRule:
        judge = Judge(attention[head, judged], rows.seen[judged], document)
        target = Target.of(attention[head, selection], rows.seen[selection])
        uniform = judge.uniform()

        def share(values: Tensor, weights: Tensor) -> Share:
            logits = torch.tensordot(weights, values[:, judged], 1)
            return explained(judge.by_document(logits), uniform)

        start = torch.zeros(len(places))
        by_place = newton(target, place_values[:, selection], start, steps=6, tolerance=1e-3)
        terms = drafts[head].terms
        values = term_values(texts, terms)
        fitted = newton(target, values[:, selection], drafts[head].weights, steps=4)
        weighed = parts(terms, fitted.weights)
        kinds = ["sink" if f.tokens & resting else f.kind for f, *_ in weighed]
        by_kind = bits_by_kind(judge, target, values, fitted.weights, kinds)
        lost = unique_bits(judge, values[:, judged], fitted)
        weighted = [
            WeightedFeature(*part, kind, explained(uniform - bits, uniform))
            for part, kind, bits in zip(weighed, kinds, lost, strict=True)
        ]
        total = float(uniform.sum())
        return HeadRule(
            layer,
            head,
            total / len(judge.attention),
            tuple(sorted(weighted, key=lambda term: -term.unique.value)),
            parts(places, by_place.weights),
            share(place_values, by_place.weights),
            share(values, fitted.weights),
            {kind: bits / total for kind, bits in by_kind.items()} if total > 0 else {},
        )

    return map_heads(explain, len(drafts))
