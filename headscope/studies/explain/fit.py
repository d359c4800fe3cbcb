"""Grow a rule for each head of a layer: add features while they pay, then remove the least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.studies.explain.catalogue import Catalogue, Packed, QueryTable, find_cells
from headscope.studies.explain.places import LATER, LOG_DISTANCE, TOKEN_0
from headscope.studies.explain.select import GATED_PAYS, Gains, Selector
from headscope.studies.explain.softmax import (
    Fitted,
    Target,
    kl_divergences,
    log_rule,
    map_heads,
    newton,
)

PAYS = 0.0015
"""Least share of the bits above uniform that a feature must bring on the choosing documents."""
LEAST = 2e-4
"""Least nats per query that it must bring, for heads that are nearly uniform."""
TRIES = 2
"""Number of features in a row that may fail before a rule is complete."""
BASE = (TOKEN_0.name, LATER.name, LOG_DISTANCE.name)
"""Initial features of every rule; each is removed if it does not pay."""
SPARE = 3
"""Number of features above the maximum that a rule may have while it grows."""
STEP = 2
"""Every second query counts: neighbouring queries have similar attention."""


@dataclass(frozen=True, eq=False)
class Texts:
    """Cells of all features in the rows that fit, then those that choose, then those that judge."""

    rows: QueryTable
    packed: Packed
    fitted: int
    """Number of rows that weights are fitted on while features are chosen."""
    selection_rows: int
    """Number of rows before the first one that judges."""

    @classmethod
    def of(cls, catalogue: Catalogue, parts: Sequence[Sequence[Window]]) -> Texts:
        """Every second query of the windows that fit, choose and judge."""
        rows = QueryTable.of([window for part in parts for window in part], STEP)
        bounds = (len(parts[0]), len(parts[0]) + len(parts[1]))
        fitted, selection = np.searchsorted(rows.window.numpy(), bounds).tolist()
        return cls(rows, find_cells(catalogue, rows), fitted, selection)

    @property
    def judged(self) -> slice:
        """The rows of documents that neither fitted nor chose."""
        return slice(self.selection_rows, len(self.rows))

    @cached_property
    def selector(self) -> Selector:
        """Candidates over the fitted rows."""
        return Selector(self.packed, self.rows, self.fitted)


@dataclass(frozen=True, order=True)
class Term:
    """A feature at every query or at one kind of query."""

    feature: int
    gate: int
    """Number in `GATES`; −1 for every query."""


@dataclass(eq=False)
class Draft:
    """A head's rule while it grows."""

    terms: list[Term]
    weights: Float[Tensor, " term"]
    refused: set[Term] = field(default_factory=set)
    failed: int = 0
    best: float = np.inf
    """Least divergence on the choosing rows so far, in nats."""
    done: bool = False


def term_values(
    texts: Texts, terms: Sequence[Term], rows: int | None = None
) -> Float[Tensor, "term row key"]:
    """Values of features at every cell of the first rows, or of all rows if None."""
    table = texts.rows
    count = len(table) if rows is None else rows
    values = torch.zeros(len(terms), count * table.width)
    for index, term in enumerate(terms):
        cell, value = texts.packed.cells_of(term.feature)
        in_rows = cell < count * table.width
        if term.gate >= 0:
            in_rows &= table.gate.numpy()[cell // table.width] == term.gate
        values[index, torch.from_numpy(cell[in_rows])] = torch.from_numpy(value[in_rows])
    return values.view(len(terms), count, table.width)


class LayerFit:
    """Growing rules of a layer's heads: one pass over the features serves all heads."""

    def __init__(
        self, texts: Texts, attention: Float[Tensor, "head row key"], features: int
    ) -> None:
        self.texts, self.selector = texts, texts.selector
        self.attention, self.most = attention, features
        self.seen = texts.rows.seen
        n, m = texts.fitted, texts.selection_rows
        self.targets = [Target.of(item[:n], self.seen[:n]) for item in attention]
        self.wholes = [Target.of(item[:m], self.seen[:m]) for item in attention]
        self.uniform = self.seen / self.seen.sum(-1, keepdim=True)
        bits = kl_divergences(attention[:, n:m], self.uniform[n:m].log()).sum(-1)
        self.limit = (bits * PAYS).clamp_min(LEAST * (m - n))
        self.wanted = self.selector.masses(attention[:, :n])
        self.rule = torch.empty(len(attention), n, texts.rows.width)
        names = {item.name: i for i, item in enumerate(texts.packed.features)}
        terms = [Term(names[name], -1) for name in BASE if name in names]
        self.drafts = [Draft(list(terms), torch.zeros(len(terms))) for _ in attention]
        map_heads(self._begin, len(self.drafts))

    def grow(self) -> list[Draft]:
        """Add features until none pays, then remove the least important ones."""
        while not all(draft.done for draft in self.drafts):
            gains = self.selector.gains(self.wanted, self.rule)
            map_heads(partial(self._extend, gains), len(self.drafts))
        map_heads(self._thin, len(self.drafts))
        return self.drafts

    def _begin(self, head: int) -> None:
        draft = self.drafts[head]
        values = term_values(self.texts, draft.terms, self.texts.selection_rows)
        fitted = self._fit(head, values, draft.weights)
        draft.weights, self.rule[head] = fitted.weights, fitted.rule
        draft.best = self._judge(head, values, fitted.weights)

    def _extend(self, gains: Gains, head: int) -> None:
        draft = self.drafts[head]
        if draft.done:
            return
        nats, weight = gains.nats[:, head].clone(), gains.weight[:, head]
        used = [
            self.selector.number(refused_term.feature, refused_term.gate)
            for refused_term in draft.refused
        ]
        nats[torch.tensor(used, dtype=torch.long)] = -torch.inf
        nats[self.selector.features :] /= GATED_PAYS
        number = int(nats.argmax())
        term = Term(*self.selector.candidate(number))
        draft.refused.add(term)
        if not nats[number] > 0:
            draft.done = True
            return
        # computed again each time: the values of all heads would take hundreds of megabytes
        values = term_values(self.texts, [*draft.terms, term], self.texts.selection_rows)
        start = torch.cat([draft.weights, weight[number : number + 1]])
        fitted = self._fit(head, values, start)
        loss = self._judge(head, values, fitted.weights)
        if draft.best - loss < float(self.limit[head]):
            draft.failed += 1
            draft.done = draft.failed >= TRIES
            return
        draft.terms.append(term)
        self.rule[head] = fitted.rule
        draft.weights, draft.best, draft.failed = fitted.weights, loss, 0
        draft.done = len(draft.terms) >= self.most + SPARE

    def _fit(self, head: int, values: Tensor, start: Tensor) -> Fitted:
        fitted_values = values[:, : self.texts.fitted]
        return newton(self.targets[head], fitted_values, start, steps=3, tolerance=1e-3)

    def _judge(self, head: int, values: Tensor, weights: Tensor) -> float:
        """Divergence on the choosing rows in nats."""
        n, m = self.texts.fitted, self.texts.selection_rows
        logs = log_rule(torch.tensordot(weights, values[:, n:], 1), self.seen[n:m])
        return float(kl_divergences(self.attention[head, n:m], logs).sum())

    def _thin(self, head: int) -> None:
        """Refit on all rows but the judging ones; remove the cheapest feature, one at a time."""
        draft, target = self.drafts[head], self.wholes[head]
        rows = self.texts.selection_rows / (self.texts.selection_rows - self.texts.fitted)
        limit = float(self.limit[head]) * rows
        values = term_values(self.texts, draft.terms, self.texts.selection_rows)
        fitted = newton(target, values, draft.weights, steps=6)
        while len(draft.terms):
            cost = fitted.weights**2 / fitted.inverse.diagonal() / 2
            least = int(cost.argmin())
            too_many = len(draft.terms) > self.most
            if not too_many and float(cost[least]) >= limit:
                break
            remaining = [i for i in range(len(draft.terms)) if i != least]
            step = fitted.inverse[:, least] * fitted.weights[least] / fitted.inverse[least, least]
            fewer = newton(
                target,
                values[remaining],
                (fitted.weights - step)[remaining],
                steps=3,
                tolerance=1e-3,
            )
            # curvature underestimates the cost of large weights, so the refit decides
            if not too_many and fewer.loss - fitted.loss >= limit:
                break
            draft.terms, values = [draft.terms[i] for i in remaining], values[remaining]
            fitted = fewer
        draft.weights = fitted.weights
