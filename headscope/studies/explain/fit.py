"""Grow a feature model for each head of a layer: add features while they pay, then remove the
least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.studies.explain.catalogue import Term, Texts
from headscope.studies.explain.places import LATER, LOG_DISTANCE, TOKEN_0
from headscope.studies.explain.select import GATED_PAYS, Gains, Selector
from headscope.studies.explain.softmax import Fitted, kl_divergences, log_pattern, map_heads, newton

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
