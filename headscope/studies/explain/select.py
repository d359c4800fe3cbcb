"""Gain of every feature as a feature model's next one, for all heads at once.

If the feature model has mass m and the head mass t on a feature's cells of a query, a weight w
lowers the query's divergence by w·t − ln(1 + m·(eʷ − 1)). All queries share one w, or all of one
gate. The model's pattern is computed once for hundreds of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.sparse import csr_array
from torch import Tensor

from headscope.studies.explain.catalogue import GATES, Term, Texts
from headscope.studies.explain.softmax import WEIGHT_LIMIT

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
        self.gated = _counts(code[first], self.features * len(GATES))
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


def _counts(code: ndarray, size: int) -> Int[Tensor, " candidate"]:
    return torch.from_numpy(np.bincount(code, minlength=size))


def _logit(share: Float[Tensor, "candidate head"]) -> Float[Tensor, "candidate head"]:
    return torch.logit(share, eps=_LEAST)
