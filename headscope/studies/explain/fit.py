"""Grow a feature model for each head of a layer: add features while they pay, then remove the
least.

A feature's gain is computed for all heads at once. If the feature model has mass m and the head
mass t on a feature's cells of a query, a weight w lowers the query's divergence by w·t − ln(1 +
m·(eʷ − 1)). All queries share one w, or all of one gate. The model's pattern is computed once for
hundreds of features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.sparse import csr_array
from torch import Tensor

from headscope.studies.explain.catalogue import BIGRAMS_TERM, GATES, Term, Texts
from headscope.studies.explain.features import LATER, LOG_DISTANCE, TOKEN_0
from headscope.studies.explain.pattern_scores import kl_divergences, log_pattern

PAYS = 0.0015
"""Least share of the bits above uniform that a feature must bring on the choosing documents."""
LEAST = 2e-4
"""Least nats per query that it must bring, for heads that are nearly uniform."""
WORTH = 0.005
"""Least share of the bits above uniform that each feature of a complete model must be worth there.
"""
TRIES = 2
"""Number of features in a row that may fail before a feature model is complete."""
BASE = (TOKEN_0.name, LATER.name, LOG_DISTANCE.name)
"""Initial features of every model; each is removed if it does not pay."""
BIGRAMS_PAY = 0.02
"""Least share of the bits above uniform that bigrams must bring to a model of other features.

It is larger than that of other features, which say more: bigrams alone explain an induction head.
"""
TRIED_REMOVALS = 3
"""Number of features whose removal is tried before a feature model is complete."""
SPARE = 3
"""Number of features above the maximum that a feature model may have while it grows."""
FEWEST = 24
"""Least number of fitted queries at which a candidate must hold."""
GATED_PAYS = 1.5
"""Factor by which a gated feature's gain must exceed that of an ungated one."""
_LEAST = 1e-6
RIDGE = 1e-4
"""Penalty per row on squared weights, so that a feature without attention has a finite weight."""
WEIGHT_LIMIT = 12.0
"""Largest absolute weight in logits: a factor of 160,000 between two keys."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Fitted weights in logits, with the curvature of the objective there."""

    weights: Float[Tensor, " feature"]
    inverse: Float[Tensor, "feature feature"]
    """Inverse Hessian of the summed divergence with its penalty."""
    loss: float
    pattern: Float[Tensor, "row key"]
    """The feature model's pattern on the fitted rows."""


def newton(
    attention: Float[Tensor, "row key"],
    seen: Bool[Tensor, "row key"],
    values: Float[Tensor, "feature row key"],
    weights: Float[Tensor, " feature"],
    *,
    steps: int,
    tolerance: float = 1e-4,
) -> Fitted:
    """Minimise Σ KL(attention ‖ pattern) over the weights of features, by damped Newton steps.

    The objective is convex; a step that does not lower it is divided by 4.

    Args:
        attention: the head's attention on the fitted rows.
        seen: mask of the keys that their queries see.
        values: features there, 0 if one does not hold.
        weights: initial weights.
        steps: largest number of steps.
        tolerance: nats per row below which a step is the last.
    """
    # Σ KL is a constant, minus the mass of each feature, plus log-sum-exp
    rows, flat = len(attention), values.flatten(1)
    target_mass = flat @ attention.flatten()
    negative_entropy = float(-torch.special.entr(attention).sum(dtype=torch.float64))
    penalty = RIDGE * rows
    base = torch.zeros_like(attention).masked_fill(~seen, -torch.inf).flatten()

    # the loss and the pattern come from one pass over the cells, in place: they are as large as all
    # patterns of the head
    def at(weights: Tensor) -> tuple[float, Tensor]:
        logits = torch.addmv(base, flat.T, weights).view_as(attention)
        largest = logits.amax(-1, keepdim=True)
        pattern = logits.sub_(largest).exp_()
        total = pattern.sum(-1, keepdim=True)
        logs = float(total.log().add_(largest).sum(dtype=torch.float64))
        loss = logs - float(weights @ target_mass)
        loss += negative_entropy + penalty / 2 * float(weights @ weights)
        return loss, pattern.div_(total)

    loss, pattern = at(weights)
    eye = torch.eye(len(weights), device=flat.device)
    inverse = eye
    # damped: a step that does not lower the loss is shortened
    for _ in range(steps):
        weighed = values * pattern
        mean = weighed.sum(-1)
        gradient = mean.sum(-1) - target_mass + penalty * weights
        hessian = weighed.flatten(1) @ flat.T - mean @ mean.T + (penalty + 1e-3) * eye
        inverse = torch.linalg.inv(hessian.double()).float()
        step, size = inverse @ gradient, 1.0
        while size > 1e-3:
            tried = (weights - size * step).clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT)
            new, new_pattern = at(tried)
            if new <= loss:
                break
            size /= 4
        else:
            break
        gained = loss - new
        weights, loss, pattern = tried, new, new_pattern
        if gained < tolerance * rows:
            break
    return Fitted(weights, inverse, loss, pattern)


_Result = TypeVar("_Result")


def map_heads(work: Callable[[int], _Result], heads: int) -> list[_Result]:
    """Results for each head, on one thread per core: torch shares steps this small badly.

    >>> map_heads(lambda head: head * 2, 3)
    [0, 2, 4]
    """
    cores = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(cores) as pool:
            return list(pool.map(torch.inference_mode()(work), range(heads)))
    finally:
        torch.set_num_threads(cores)


@dataclass(frozen=True, eq=False)
class Gains:
    """Gain of each candidate in nats, summed over rows, and its weight in logits."""

    nats: Float[Tensor, "candidate head"]
    weight: Float[Tensor, "candidate head"]


class Selector:
    """Candidates over the rows of a fit: every feature, and every feature at one kind of query."""

    def __init__(self, texts: Texts) -> None:
        """Group cells of the fitted rows by feature, gate and row."""
        # groups of cells as sparse rows, so that one product sums them
        self.features = len(texts.features)
        cells = _GatedCells.of(texts)
        first = cells.first_of_groups()
        bounds = np.append(first, len(cells.cell)).astype(np.int32)
        shape = (len(first), texts.fitted * texts.width)
        self.sums = csr_array((cells.value, cells.cell, bounds), shape=shape)
        self.squares = csr_array((cells.value**2, cells.cell, bounds), shape=shape)
        # groups of each feature at each gate
        code_of_group = cells.code[first]
        counts = np.bincount(code_of_group, minlength=self.features * len(GATES))
        self.gated = torch.from_numpy(counts)
        self.ungated = self.gated.view(-1, len(GATES)).sum(1)
        # features whose values are not 0 or 1 have a gain of another form
        smooth_codes = np.unique(cells.code[cells.value != 1])
        smooth = np.zeros(self.features, bool)
        smooth[smooth_codes // len(GATES)] = True
        feature_of_group = code_of_group // len(GATES)
        self.smooth = torch.from_numpy(smooth)
        self.smooth_groups = torch.from_numpy(np.flatnonzero(smooth[feature_of_group]))

    def masses(self, pattern: Float[Tensor, "head row key"]) -> Float[Tensor, "group head"]:
        """Mass of patterns on each group, on the fitted rows."""
        return torch.from_numpy(self.sums @ _columns(pattern))

    def gains(
        self, target_mass: Float[Tensor, "group head"], pattern: Float[Tensor, "head row key"]
    ) -> Gains:
        """Gain of each candidate: all features, then all features at each gate."""
        # mass of each group under the pattern, and its spread where values are smooth
        columns = _columns(pattern)
        mass = torch.from_numpy(self.sums @ columns)
        spread = mass.clone()
        smooth_groups = self.smooth_groups
        squares = self.squares[smooth_groups.numpy()]
        spread[smooth_groups] = torch.from_numpy(squares @ columns)
        masses = _Masses(target=target_mass, model=mass, spread=spread)
        # all features, then all features at each gate
        ungated = _gains(masses, self.ungated, self.smooth)
        smooth_by_gate = self.smooth.repeat_interleave(len(GATES))
        gated = _gains(masses, self.gated, smooth_by_gate)
        return Gains(
            nats=torch.cat([ungated.nats, gated.nats]),
            weight=torch.cat([ungated.weight, gated.weight]),
        )

    def candidate(self, number: int) -> Term:
        """Feature and gate of a candidate."""
        if number < self.features:
            return Term(number, -1)
        feature, gate = divmod(number - self.features, len(GATES))
        return Term(feature, gate)


@dataclass(frozen=True, eq=False)
class _GatedCells:
    """Cells of the fitted rows, sorted by feature and gate, then by cell."""

    code: Int[ndarray, " item"]
    """feature × number of gates + gate."""
    row: Int[ndarray, " item"]
    cell: Int[ndarray, " item"]
    value: Float[ndarray, " item"]

    @classmethod
    def of(cls, texts: Texts) -> _GatedCells:
        """The cells of all features."""
        feature = np.repeat(np.arange(len(texts.features)), np.diff(texts.start))
        is_fitted = texts.cell < texts.fitted * texts.width
        cell = texts.cell[is_fitted]
        row = cell // texts.width
        code = feature[is_fitted] * len(GATES) + texts.gate.numpy()[row]
        # cells of one feature, gate and row stand together, so that their sums are of stretches
        order = np.lexsort((cell, code))
        return cls(
            code=code[order],
            row=row[order],
            cell=cell[order],
            value=texts.value[is_fitted][order],
        )

    def first_of_groups(self) -> Int[ndarray, " group"]:
        """Index of the first cell of each feature, gate and row."""
        is_first = np.ones(len(self.cell), bool)
        other_row = self.row[1:] != self.row[:-1]
        other_code = self.code[1:] != self.code[:-1]
        is_first[1:] = other_row | other_code
        return np.flatnonzero(is_first)


@dataclass(frozen=True, eq=False)
class _Masses:
    """Attention of the heads and of their feature models on each group of cells."""

    target: Float[Tensor, "group head"]
    model: Float[Tensor, "group head"]
    spread: Float[Tensor, "group head"]
    """Mass of the model times the feature's value once more."""


def _gains(
    masses: _Masses, counts: Int[Tensor, " candidate"], smooth: Bool[Tensor, " candidate"]
) -> Gains:
    """Gains of candidates that have `counts` groups each, in the order of the groups."""

    def total(values: Tensor) -> Tensor:
        return torch.segment_reduce(values, "sum", lengths=counts, axis=0)

    # the logits that each group's mass asks for
    heads, model = total(masses.target), total(masses.model)
    size = counts[:, None].clamp_min(1)
    difference_of_logits = _logit(heads / size) - _logit(model / size)
    weight = difference_of_logits.clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT)
    weight_of_group = weight.repeat_interleave(counts, 0)
    model_mass = masses.model.clamp(0, 1)
    held = total(torch.log1p(model_mass * torch.expm1(weight_of_group)))
    nats = weight * heads - held
    # the mass of a smooth feature is not a probability: gain of half a Newton step instead
    difference = heads - model
    curve = total(masses.spread - masses.model**2).clamp_min(_LEAST)
    half_step = (difference / curve / 2).clamp(-1, 1)
    is_smooth = smooth[:, None]
    nats = torch.where(is_smooth, difference**2 / curve / 4, nats)
    weight = torch.where(is_smooth, half_step, weight)
    # candidates with few groups gain by chance
    is_rare = counts[:, None] < FEWEST
    return Gains(nats=torch.where(is_rare, -torch.inf, nats), weight=weight)


def _columns(pattern: Float[Tensor, "head row key"]) -> Float[ndarray, "cell head"]:
    return np.ascontiguousarray(pattern.flatten(1).T.numpy())


def _logit(share: Float[Tensor, "candidate head"]) -> Float[Tensor, "candidate head"]:
    return torch.logit(share, eps=_LEAST)


@dataclass(eq=False)
class Draft:
    """A head's feature model while it grows."""

    terms: list[Term]
    weights: Float[Tensor, " term"]
    tried: list[int] = field(default_factory=list)
    """Numbers of candidates."""
    failed: int = 0
    best: float = np.inf
    """Least divergence on the choosing rows so far, in nats."""
    done: bool = False


class LayerFit:
    """Growing feature models of a layer's heads: one pass over the features serves all heads."""

    def __init__(
        self,
        texts: Texts,
        selector: Selector,
        attention: Float[Tensor, "head row key"],
        features: int,
        content: Float[Tensor, "head row key"] | None = None,
    ) -> None:
        self.texts = texts
        self.selector = selector
        self.attention = attention
        self.features = features
        self.content = content
        self.seen = texts.seen
        fitted = attention[:, : texts.fitted]
        # gains below which a feature is not worth its place
        self.limit = self._least_gain(PAYS)
        self.least_worth = self._least_gain(WORTH)
        self.least_of_bigrams = self._least_gain(BIGRAMS_PAY)
        # gains of all candidates need the mass of each under the head, once, and under its model,
        # after each step
        self.target_mass = selector.masses(fitted)
        self.pattern = torch.empty(fitted.shape)
        # begin with the initial features that the texts have, without a gate
        numbers = {feature.name: number for number, feature in enumerate(self.texts.features)}
        terms = [Term(numbers[name], -1) for name in BASE if name in numbers]
        self.drafts = [Draft(list(terms), torch.zeros(len(terms))) for _ in attention]

        def begin(head: int) -> None:
            draft = self.drafts[head]
            values = self._values(head, draft.terms)
            fitted = self._fit(head, values, draft.weights)
            draft.weights = fitted.weights
            draft.best = self._judge(head, values, fitted.weights)
            self.pattern[head] = fitted.pattern

        map_heads(begin, len(self.drafts))

    def _least_gain(self, share: float) -> Float[Tensor, " head"]:
        """Nats on the choosing rows that a feature must bring each head: a share of its bits."""
        choosing = slice(self.texts.fitted, self.texts.selection_rows)
        uniform = self.seen / self.seen.sum(-1, keepdim=True)
        nats = kl_divergences(self.attention[:, choosing], uniform[choosing].log()).sum(-1)
        least = LEAST * (self.texts.selection_rows - self.texts.fitted)
        return (nats * share).clamp_min(least)

    def _values(self, head: int, terms: Sequence[Term]) -> Float[Tensor, "term row key"]:
        """Values of features on the rows that fit and choose."""
        content = None if self.content is None else self.content[head]
        return self.texts.values(terms, self.texts.selection_rows, content=content)

    def grow(self) -> list[Draft]:
        """Add features until none pays, then remove the least important ones; add bigrams last."""
        while not all(draft.done for draft in self.drafts):
            gains = self.selector.gains(self.target_mass, self.pattern)
            map_heads(partial(self._extend, gains), len(self.drafts))
        map_heads(self._finish, len(self.drafts))
        return self.drafts

    def _finish(self, head: int) -> None:
        """Remove features that pay too little, with and without bigrams, and compare the two."""
        draft = self.drafts[head]
        self._thin(head, draft)
        if self.content is None:
            return
        terms = [*draft.terms, BIGRAMS_TERM]
        with_bigrams = Draft(terms, torch.cat([draft.weights, torch.zeros(1)]))
        self._thin(head, with_bigrams)
        if draft.best - with_bigrams.best >= float(self.least_of_bigrams[head]):
            self.drafts[head] = with_bigrams

    def _extend(self, gains: Gains, head: int) -> None:
        draft = self.drafts[head]
        if draft.done:
            return
        # the candidate with the largest gain that was not tried; a gated one must pay for its gate
        nats = gains.nats[:, head].clone()
        nats[torch.tensor(draft.tried, dtype=torch.long)] = -torch.inf
        nats[self.selector.features :] /= GATED_PAYS
        best = int(nats.argmax())
        number = best if nats[best] > 0 else None
        if number is None:
            draft.done = True
            return
        draft.tried.append(number)
        term = self.selector.candidate(number)
        # computed again each time: the values of all heads would take hundreds of megabytes
        values = self._values(head, [*draft.terms, term])
        initial_weight = gains.weight[number, head].reshape(1)
        start = torch.cat([draft.weights, initial_weight])
        fitted = self._fit(head, values, start)
        loss = self._judge(head, values, fitted.weights)
        # what does not lower the loss of other documents is left out
        if draft.best - loss < float(self.limit[head]):
            draft.failed += 1
            draft.done = draft.failed >= TRIES
            return
        draft.terms.append(term)
        draft.weights = fitted.weights
        draft.best = loss
        draft.failed = 0
        draft.done = len(draft.terms) >= self.features + SPARE
        self.pattern[head] = fitted.pattern

    def _fit(self, head: int, values: Tensor, start: Tensor, *, steps: int = 3) -> Fitted:
        count = self.texts.fitted
        return newton(
            self.attention[head, :count],
            self.seen[:count],
            values[:, :count],
            start,
            steps=steps,
            tolerance=1e-3,
        )

    def _judge(self, head: int, values: Tensor, weights: Tensor) -> float:
        """Divergence on the choosing rows in nats."""
        choosing = slice(self.texts.fitted, self.texts.selection_rows)
        logits = torch.tensordot(weights, values[:, self.texts.fitted :], 1)
        logs = log_pattern(logits, self.seen[choosing])
        return float(kl_divergences(self.attention[head, choosing], logs).sum())

    def _thin(self, head: int, draft: Draft) -> None:
        """Remove the cheapest feature while there are too many, or while one is worth too little.

        Worth is measured on the choosing rows, after a refit of the other features.
        """
        # features grow a little beyond their number, because one that pays at first may pay nothing
        # beside later ones
        values = self._values(head, draft.terms)
        fitted = self._fit(head, values, draft.weights, steps=6)
        loss = self._judge(head, values, fitted.weights)
        while draft.terms:
            is_over = len(draft.terms) > self.features
            limit = np.inf if is_over else loss + float(self.least_worth[head])
            # the first goes whose removal keeps the loss below the limit, from the cheapest by
            # curvature on
            inverse = fitted.inverse
            curvature_cost = fitted.weights**2 / inverse.diagonal() / 2
            for term in curvature_cost.argsort().tolist()[:TRIED_REMOVALS]:
                remaining = [other for other in range(len(values)) if other != term]
                # start at the minimum of the quadratic approximation where the term's weight is 0
                step = inverse[:, term] * fitted.weights[term] / inverse[term, term]
                start = (fitted.weights - step)[remaining]
                refitted = self._fit(head, values[remaining], start)
                loss_without = self._judge(head, values[remaining], refitted.weights)
                if loss_without < limit:
                    break
            else:
                break
            draft.terms = [draft.terms[number] for number in remaining]
            values = values[remaining]
            fitted = refitted
            loss = loss_without
        draft.weights = fitted.weights
        draft.best = loss
