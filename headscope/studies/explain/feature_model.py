"""Feature models of a layer's heads, and the share of each head that its model explains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.printing import one_line
from headscope.statistics.ratio import interval, resample
from headscope.studies.explain.catalogue import (
    BIGRAMS,
    BIGRAMS_TERM,
    GATES,
    Term,
    Texts,
    kinds_of_tokens,
)
from headscope.studies.explain.content import LayerRows, raised_pairs
from headscope.studies.explain.features import PLACE_FEATURES, Feature
from headscope.studies.explain.fit import Fitted, LayerFit, Selector, map_heads, newton
from headscope.studies.explain.pattern_scores import (
    PatternPair,
    PatternScores,
    kl_divergences,
    log_pattern,
    scores,
)

LISTED = 3
"""Number of tokens and of classes that are listed."""
FIRST_TOKEN = "first token"


@dataclass(frozen=True)
class Unexplained:
    """Attention above that of the feature model, mean per query, in [0, 1]."""

    total: float
    by_class: dict[str, float]
    """By the key's kind: `first token` or one of `GATES`; the `LISTED` largest."""
    by_token: dict[str, float]
    """By the key's token, without the first one; the `LISTED` largest."""

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {mass:.2f}" for name, mass in self.by_class.items())
        tokens = ", ".join(
            f"“{one_line(token.strip()) or 'space'}” {mass:.2f}"
            for token, mass in self.by_token.items()
        )
        return f"{self.total:.2f} of its attention ({classes}; tokens {tokens})"


def unexplained(
    texts: Texts, attention: Float[Tensor, "row key"], pattern: Float[Tensor, "row key"]
) -> Unexplained:
    """Attention of a head above its feature model's, on the rows that judge.

    Args:
        texts: windows and their rows.
        attention: the head's attention on the rows that judge.
        pattern: the feature model's.
    """
    # attention above the model's, by the key's kind and token
    excess = (attention - pattern).clamp_min(0).double().numpy()
    window_of_row = texts.window[texts.judged].numpy()
    by_class: dict[str, float] = defaultdict(float)
    by_token: dict[str, float] = defaultdict(float)
    for index in np.unique(window_of_row):
        window = texts.windows[index]
        of_key = excess[window_of_row == index].sum(0)[: len(window)]
        kinds = [GATES[kind] for kind in kinds_of_tokens(window).tolist()]
        # a sink is named apart from the token that happens to stand there
        kinds[0] = FIRST_TOKEN
        _add(by_class, kinds, of_key)
        _add(by_token, window.strings[1:], of_key[1:])
    rows = len(excess)
    return Unexplained(
        total=float(excess.sum()) / rows,
        by_class=_largest(by_class, rows),
        by_token=_largest(by_token, rows),
    )


def _add(masses: dict[str, float], names: Sequence[str], values: Float[ndarray, " key"]) -> None:
    for name, value in zip(names, values.tolist(), strict=True):
        masses[name] += value


def _largest(masses: Mapping[str, float], rows: int) -> dict[str, float]:
    """The `LISTED` largest masses, mean per row."""
    order = sorted(masses, key=lambda name: -masses[name])
    return {name: masses[name] / rows for name in order[:LISTED]}


BIT = log(2)
LISTED_FEATURES = 5
"""Number of features that a sentence names."""


class Share(NamedTuple):
    """A share of the bits between uniform attention and the head's, with its 95 % interval."""

    value: float
    low: float
    high: float


class WeightedFeature(NamedTuple):
    """A feature of the model."""

    feature: Feature
    queries: str
    """The kind of queries at which it applies, in `GATES`; empty for every query."""
    weight: float
    """Logits that the feature adds: a key with it is preferred by a factor of e^weight."""
    unique: Share
    """Share of the bits that is lost without it."""
    pairs: str = ""
    """Pairs of query and key whose attention it raises most, of `BIGRAMS`."""

    @property
    def name(self) -> str:
        """The feature, with its pairs of tokens."""
        return f"{self.feature.name} ({self.pairs})" if self.pairs else self.feature.name

    @property
    def label(self) -> str:
        """The name, and the kind of queries at which it applies."""
        return f"{self.name} on a {self.queries}" if self.queries else self.name


class FeatureModel(NamedTuple):
    """The feature model of one head, and how much of the head it explains."""

    layer: int
    head: int
    bits: float
    """KL(head ‖ uniform) in bits per query."""
    terms: tuple[WeightedFeature, ...]
    """Features, the one with the most unique bits first."""
    position: float
    """Share that a feature model of sinks and distance alone explains."""
    explained: Share
    """Share that the feature model explains."""
    scores: PatternScores
    unexplained: Unexplained
    """Attention that no feature of the model names."""

    @property
    def has_content(self) -> bool:
        """True if one of its features is `BIGRAMS`."""
        return any(term.feature == BIGRAMS for term in self.terms)

    @property
    def sentence(self) -> str:
        """The features with the most unique bits, with their weights in logits."""
        if not self.terms:
            return "uniform attention"
        listed = [f"{term.label} ({term.weight:+.1f})" for term in self.terms[:LISTED_FEATURES]]
        unlisted = len(self.terms) - len(listed)
        return "; ".join(listed) + (f"; {unlisted} more" if unlisted else "")


class TermLogits(NamedTuple):
    """The features of a model that some texts have, and the logits that each adds."""

    features: tuple[WeightedFeature, ...]
    logits: Float[Tensor, "term row key"]


def term_logits(
    model: FeatureModel, texts: Texts, content: Float[Tensor, "row key"] | None
) -> TermLogits:
    """The logits that each feature of a model adds at every cell of texts that were not fitted.

    A feature that the texts do not have, such as that of a token, adds nothing.

    Args:
        model: of a head.
        texts: windows and their rows.
        content: the head's values of `BIGRAMS`; None if no model has this feature.
    """
    # features that the new texts have; the others add nothing
    number_of_feature = {feature.name: i for i, feature in enumerate(texts.features)}
    known = []
    terms = []
    for weighted in model.terms:
        name = weighted.feature.name
        gate = GATES.index(weighted.queries) if weighted.queries else -1
        # bigrams have values that come from the head itself, not from the text
        if weighted.feature == BIGRAMS:
            term = BIGRAMS_TERM
        elif name in number_of_feature:
            term = Term(number_of_feature[name], gate)
        else:
            continue
        known.append(weighted)
        terms.append(term)
    weights = torch.tensor([weighted.weight for weighted in known])
    values = texts.values(terms, content=content)
    return TermLogits(tuple(known), values * weights[:, None, None])


class JudgedRows(NamedTuple):
    """A head's attention on the rows that judge."""

    attention: Float[Tensor, "row key"]
    seen: Bool[Tensor, "row key"]
    document: Int[ndarray, " row"]
    """Each row's document, counted from 0."""

    def by_document(self, logits: Float[Tensor, "row key"]) -> Float[ndarray, " document"]:
        """KL(head ‖ model) in bits, summed over the rows of each document."""
        nats = kl_divergences(self.attention, log_pattern(logits, self.seen))
        return np.bincount(self.document, nats.double().numpy() / BIT)


def explained(
    divergence: Float[ndarray, " document"], uniform: Float[ndarray, " document"]
) -> Share:
    """1 − KL(head ‖ model) / KL(head ‖ uniform), with its interval over documents.

    1 if the model equals the head, 0 if it is no better than uniform attention, below 0 if worse.

    >>> explained(np.array([1.0, 1.0]), np.array([4.0, 4.0])).value
    0.75
    """
    total = float(uniform.sum())
    if total <= 0:
        return Share(float("nan"), float("nan"), float("nan"))
    unexplained = float(divergence.sum()) / total
    draws = resample(len(divergence), np.random.default_rng(0))
    low, high = interval(divergence, uniform, draws)
    return Share(1 - unexplained, 1 - float(high), 1 - float(low))


def bits_without(
    judge: JudgedRows, values: Float[Tensor, "term row key"], fitted: Fitted, index: int
) -> Float[ndarray, " document"]:
    """KL(head ‖ model) in bits of each document for the feature model without one feature.

    The other weights change as if refitted, by the objective's curvature (optimal brain surgeon,
    Hassibi and Stork 1993).
    """
    column = fitted.inverse[:, index]
    weights = fitted.weights - column * fitted.weights[index] / column[index]
    weights[index] = 0
    return judge.by_document(torch.tensordot(weights, values, 1))


def explain_layer(
    texts: Texts, selector: Selector, rows: LayerRows, *, features: int
) -> list[FeatureModel]:
    """Fit and judge models of at most `features` features."""
    # which features a head gets is decided layer by layer
    attention = rows.attention
    seen = texts.seen
    judged = texts.judged
    selection = slice(texts.selection_rows)
    drafts = LayerFit(texts, selector, attention, features, rows.content).grow()
    # sinks and distance, as far as the texts have them
    numbers = {feature: number for number, feature in enumerate(texts.features)}
    places = [Term(numbers[feature], -1) for feature in PLACE_FEATURES if feature in numbers]
    place_values = texts.values(places)  # the same for every head
    document_of_window = np.array([window.document for window in texts.windows])
    document_of_row = document_of_window[texts.window.numpy()]
    _, document = np.unique(document_of_row[texts.judged], return_inverse=True)

    def explain(head: int) -> FeatureModel:
        judge = JudgedRows(attention=attention[head, judged], seen=seen[judged], document=document)
        fit = partial(newton, attention[head, selection], seen[selection])
        uniform = judge.by_document(torch.zeros_like(judge.attention))

        def bits(values: Tensor, weights: Tensor) -> Float[ndarray, " document"]:
            logits = torch.tensordot(weights, values[:, judged], 1)
            return judge.by_document(logits)

        # sinks and distance alone, as a reference
        start = torch.zeros(len(places))
        by_place = fit(place_values[:, selection], start, steps=6, tolerance=1e-3)
        bits_of_place = bits(place_values, by_place.weights)
        # the model as it was chosen, fitted again on more rows
        terms = drafts[head].terms
        content = None if rows.content is None else rows.content[head]
        values = texts.values(terms, content=content)
        fitted = fit(values[:, selection], drafts[head].weights, steps=4)
        bits_of_model = bits(values, fitted.weights)

        def pattern_by(weights: Tensor) -> Float[Tensor, "row key"]:
            logits = torch.tensordot(weights, values[:, judged], 1)
            return log_pattern(logits, judge.seen).exp()

        pattern = pattern_by(fitted.weights)
        # each feature is worth what is lost without it
        weights = fitted.weights.tolist()
        weighted = []
        for index, term in enumerate(terms):
            lost = bits_without(judge, values[:, judged], fitted, index) - bits_of_model
            pairs = ""
            if term == BIGRAMS_TERM:
                # pairs of tokens between which there would be less attention without bigrams
                others = fitted.weights.clone()
                others[index] = 0
                pairs = raised_pairs(texts, pattern - pattern_by(others))
            weighted_feature = WeightedFeature(
                feature=texts.feature(term),
                queries=GATES[term.gate] if term.gate >= 0 else "",
                weight=weights[index],
                unique=explained(uniform - lost, uniform),
                pairs=pairs,
            )
            weighted.append(weighted_feature)
        # sentences name the features in this order
        weighted.sort(key=lambda feature: -feature.unique.value)
        return FeatureModel(
            layer=rows.layer,
            head=head,
            bits=float(uniform.sum()) / len(judge.attention),
            terms=tuple(weighted),
            position=explained(bits_of_place, uniform).value,
            explained=explained(bits_of_model, uniform),
            scores=scores(PatternPair(judge.attention, pattern, judge.seen)),
            unexplained=unexplained(texts, judge.attention, pattern),
        )

    return map_heads(explain, len(drafts))
