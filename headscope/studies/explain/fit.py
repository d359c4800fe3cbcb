"""Grow a feature model for each head of a layer: add features while they pay, then remove the
least.

A feature's gain is computed for all heads at once. If the feature model has mass m and the head
mass t on a feature's cells of a query, a weight w lowers the query's divergence by w·t − ln(1 +
m·(eʷ − 1)). All queries share one w, or all of one gate. The model's pattern is computed once for
hundreds of features.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from scipy.sparse import csr_array
from torch import Tensor

from headscope.studies.explain.catalogue import GATES, Term, Texts
from headscope.studies.explain.places import LATER, LOG_DISTANCE, TOKEN_0
from headscope.studies.explain.softmax import (
    WEIGHT_LIMIT,
    Fitted,
    kl_divergences,
    log_pattern,
    map_heads,
    newton,
)

PAYS = 0.0015
"""Least share of the bits above uniform that a feature must bring on the choosing documents."""
LEAST = 2e-4
"""Least nats per query that it must bring, for heads that are nearly uniform."""
TRIES = 2
"""Number of features in a row that may fail before a feature model is complete."""
BASE = (TOKEN_0.name, LATER.name, LOG_DISTANCE.name)
"""Initial features of every model; each is removed if it does not pay."""
SPARE = 3
"""Number of features above the maximum that a feature model may have while it grows."""
FEWEST = 24
"""Least number of fitted queries at which a candidate must hold."""
GATED_PAYS = 1.5
"""Factor by which a gated feature's gain must exceed that of an ungated one."""
_LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class Gains:
    """Gain of each candidate in nats, summed over rows, and its weight in logits."""

    nats: Float[Tensor, "candidate head"]
    weight: Float[Tensor, "candidate head"]


class Selector:
    """Candidates over the rows of a fit: every feature, and every feature at one kind of query."""

    def __init__(self, texts: Texts) -> None:
        """Group cells of the fitted rows by feature, gate and row."""
        owner = np.repeat(np.arange(len(texts.features)), np.diff(texts.start))
        in_rows = texts.cell < texts.fitted * texts.width
        owner, cell, value = owner[in_rows], texts.cell[in_rows], texts.value[in_rows]
        row = cell // texts.width
        code = owner * len(GATES) + texts.gate.numpy()[row]
        order = np.lexsort((cell, code))
        code, row, cell, value = (array[order] for array in (code, row, cell, value))
        new = np.ones(len(cell), bool)
        new[1:] = (row[1:] != row[:-1]) | (code[1:] != code[:-1])
        first = np.flatnonzero(new)
        bounds = np.append(first, len(cell)).astype(np.int32)
        shape = (len(first), texts.fitted * texts.width)
        self.sums = csr_array((value, cell, bounds), shape=shape)
        self.squares = csr_array((value**2, cell, bounds), shape=shape)
        self.features = len(texts.features)
        counts = np.bincount(code[first], minlength=self.features * len(GATES))
        self.gated = torch.from_numpy(counts)
        self.whole = self.gated.view(-1, len(GATES)).sum(1)
        smooth = np.zeros(self.features, bool)
        smooth[np.unique(code[value != 1] // len(GATES))] = True
        self.smooth = torch.from_numpy(smooth)
        self.smooth_groups = torch.from_numpy(np.flatnonzero(smooth[code[first] // len(GATES)]))

    def masses(self, pattern: Float[Tensor, "head row key"]) -> Float[Tensor, "group head"]:
        """Mass of patterns on each group, on the fitted rows."""
        return torch.from_numpy(self.sums @ _columns(pattern))

    def gains(
        self, target_mass: Float[Tensor, "group head"], pattern: Float[Tensor, "head row key"]
    ) -> Gains:
        """Gain of each candidate: all features, then all features at each gate."""
        columns = _columns(pattern)
        mass = torch.from_numpy(self.sums @ columns)
        spread = mass.clone()
        smooth_groups = self.smooth_groups
        spread[smooth_groups] = torch.from_numpy(self.squares[smooth_groups.numpy()] @ columns)
        parts = [
            self._gains(target_mass, mass, spread, counts, times)
            for counts, times in ((self.whole, 1), (self.gated, len(GATES)))
        ]
        return Gains(torch.cat([p.nats for p in parts]), torch.cat([p.weight for p in parts]))

    def _gains(
        self, target_mass: Tensor, mass: Tensor, spread: Tensor, counts: Tensor, times: int
    ) -> Gains:
        def total(values: Tensor) -> Tensor:
            return torch.segment_reduce(values, "sum", lengths=counts, axis=0)

        heads, model = total(target_mass), total(mass)
        size = counts[:, None].clamp_min(1)
        weight = (_logit(heads / size) - _logit(model / size)).clamp(-WEIGHT_LIMIT, WEIGHT_LIMIT)
        weight_of_group = weight.repeat_interleave(counts, 0)
        held = total(torch.log1p(mass.clamp(0, 1) * torch.expm1(weight_of_group)))
        nats = weight * heads - held
        # the mass of a smooth feature is not a probability: gain of half a Newton step instead
        smooth = self.smooth.repeat_interleave(times)[:, None]
        difference, curve = heads - model, total(spread - mass**2).clamp_min(_LEAST)
        nats = torch.where(smooth, difference**2 / curve / 4, nats)
        weight = torch.where(smooth, (difference / curve / 2).clamp(-1, 1), weight)
        return Gains(torch.where(counts[:, None] < FEWEST, -torch.inf, nats), weight)

    def candidate(self, number: int) -> Term:
        """Feature and gate of a candidate."""
        if number < self.features:
            return Term(number, -1)
        return Term(*divmod(number - self.features, len(GATES)))


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
    ) -> None:
        self.texts, self.selector = texts, selector
        self.attention, self.most = attention, features
        self.seen = texts.seen
        n, m = texts.fitted, texts.selection_rows
        uniform = self.seen / self.seen.sum(-1, keepdim=True)
        nats = kl_divergences(attention[:, n:m], uniform[n:m].log()).sum(-1)
        self.limit = (nats * PAYS).clamp_min(LEAST * (m - n))
        self.wanted = selector.masses(attention[:, :n])
        self.pattern = torch.empty(len(attention), n, texts.width)
        names = {item.name: i for i, item in enumerate(texts.features)}
        terms = [Term(names[name], -1) for name in BASE if name in names]
        self.drafts = [Draft(list(terms), torch.zeros(len(terms))) for _ in attention]
        map_heads(self._begin, len(self.drafts))

    def grow(self) -> list[Draft]:
        """Add features until none pays, then remove the least important ones."""
        while not all(draft.done for draft in self.drafts):
            gains = self.selector.gains(self.wanted, self.pattern)
            map_heads(partial(self._extend, gains), len(self.drafts))
        map_heads(self._thin, len(self.drafts))
        return self.drafts

    def _begin(self, head: int) -> None:
        draft = self.drafts[head]
        values = self.texts.values(draft.terms, self.texts.selection_rows)
        fitted = self._fit(head, values, draft.weights)
        draft.weights, self.pattern[head] = fitted.weights, fitted.pattern
        draft.best = self._judge(head, values, fitted.weights)

    def _extend(self, gains: Gains, head: int) -> None:
        draft = self.drafts[head]
        if draft.done:
            return
        nats, weight = gains.nats[:, head].clone(), gains.weight[:, head]
        nats[torch.tensor(draft.tried, dtype=torch.long)] = -torch.inf
        nats[self.selector.features :] /= GATED_PAYS
        number = int(nats.argmax())
        term = self.selector.candidate(number)
        draft.tried.append(number)
        if not nats[number] > 0:
            draft.done = True
            return
        # computed again each time: the values of all heads would take hundreds of megabytes
        values = self.texts.values([*draft.terms, term], self.texts.selection_rows)
        start = torch.cat([draft.weights, weight[number : number + 1]])
        fitted = self._fit(head, values, start)
        loss = self._judge(head, values, fitted.weights)
        if draft.best - loss < float(self.limit[head]):
            draft.failed += 1
            draft.done = draft.failed >= TRIES
            return
        draft.terms.append(term)
        self.pattern[head] = fitted.pattern
        draft.weights, draft.best, draft.failed = fitted.weights, loss, 0
        draft.done = len(draft.terms) >= self.most + SPARE

    def _fit(self, head: int, values: Tensor, start: Tensor) -> Fitted:
        n = self.texts.fitted
        return newton(
            self.attention[head, :n], self.seen[:n], values[:, :n], start, steps=3, tolerance=1e-3
        )

    def _judge(self, head: int, values: Tensor, weights: Tensor) -> float:
        """Divergence on the choosing rows in nats."""
        n, m = self.texts.fitted, self.texts.selection_rows
        logs = log_pattern(torch.tensordot(weights, values[:, n:], 1), self.seen[n:m])
        return float(kl_divergences(self.attention[head, n:m], logs).sum())

    def _thin(self, head: int) -> None:
        """Refit on all rows but the judging ones; remove the cheapest feature, one at a time."""
        draft, m = self.drafts[head], self.texts.selection_rows
        refit = partial(newton, self.attention[head, :m], self.seen[:m])
        limit = float(self.limit[head]) * (m / (m - self.texts.fitted))
        values = self.texts.values(draft.terms, m)
        fitted = refit(values, draft.weights, steps=6)
        while len(draft.terms):
            cost = fitted.weights**2 / fitted.inverse.diagonal() / 2
            least = int(cost.argmin())
            too_many = len(draft.terms) > self.most
            if not too_many and float(cost[least]) >= limit:
                break
            remaining = [i for i in range(len(draft.terms)) if i != least]
            step = fitted.inverse[:, least] * fitted.weights[least] / fitted.inverse[least, least]
            start = (fitted.weights - step)[remaining]
            fewer = refit(values[remaining], start, steps=3, tolerance=1e-3)
            # curvature underestimates the cost of large weights, so the refit decides
            if not too_many and fewer.loss - fitted.loss >= limit:
                break
            draft.terms, values = [draft.terms[i] for i in remaining], values[remaining]
            fitted = fewer
        draft.weights = fitted.weights
