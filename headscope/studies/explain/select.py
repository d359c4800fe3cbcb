"""Choice of the next feature: its best single weight on top of a rule, for all heads at once.

Where a feature holds at a query's cells with the rule's mass m and the head's mass t, a weight w
lowers the query's divergence by w·t − ln(1 + m·(eʷ − 1)); all queries share one w, or all queries
of one gate. No pattern is built again to ask this of hundreds of features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.sparse import csr_array
from torch import Tensor

from headscope.studies.explain.catalogue import GATES, Packed, QueryTable
from headscope.studies.explain.softmax import WEIGHT_LIMIT

FEWEST = 24
"""Queries at which a feature must hold, in the text that is fitted, to be weighed at all."""
GATED_PAYS = 1.5
"""How much more than an ungated feature one must bring that speaks for some queries only."""
_LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class Gains:
    """The gain of each feature, in nats summed over rows, and its weight."""

    nats: Float[Tensor, "candidate head"]
    weight: Float[Tensor, "candidate head"]


class Selector:
    """Candidates over the rows of a fit: every feature, and every feature at one kind of query."""

    def __init__(self, packed: Packed, rows: QueryTable, count: int) -> None:
        """Group cells by feature, gate and row.

        Args:
            packed: the features.
            rows: the rows that they are packed over.
            count: how many rows, from the first on, are fitted.
        """
        owner = np.repeat(np.arange(len(packed.features)), np.diff(packed.start))
        in_rows = packed.cell < count * rows.width
        owner, cell, value = owner[in_rows], packed.cell[in_rows], packed.value[in_rows]
        row = cell // rows.width
        code = owner * len(GATES) + rows.gate.numpy()[row]
        order = np.lexsort((cell, code))
        code, row, cell, value = (array[order] for array in (code, row, cell, value))
        new = np.ones(len(cell), bool)
        new[1:] = (row[1:] != row[:-1]) | (code[1:] != code[:-1])
        first = np.flatnonzero(new)
        bounds = np.append(first, len(cell)).astype(np.int32)
        shape = (len(first), count * rows.width)
        self.sums = csr_array((value, cell, bounds), shape=shape)
        self.squares = csr_array((value**2, cell, bounds), shape=shape)
        self.features = len(packed.features)
        self.gated = _counts(code[first], self.features * len(GATES))
        self.whole = self.gated.view(-1, len(GATES)).sum(1)
        smooth = np.zeros(self.features, bool)
        smooth[np.unique(code[value != 1] // len(GATES))] = True
        self.smooth = torch.from_numpy(smooth)
        self.smooth_groups = torch.from_numpy(np.flatnonzero(smooth[code[first] // len(GATES)]))

    def masses(self, pattern: Float[Tensor, "head row key"]) -> Float[Tensor, "group head"]:
        """Each group's mass under patterns on the fitted rows."""
        return torch.from_numpy(self.sums @ _columns(pattern))

    def gains(
        self, target_mass: Float[Tensor, "group head"], rule: Float[Tensor, "head row key"]
    ) -> Gains:
        """The gain of each candidate: all features, then all features at each gate.

        Args:
            target_mass: the heads' own masses.
            rule: the patterns of the rules as they are.
        """
        columns = _columns(rule)
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
        # a smooth feature's mass is no probability: half a Newton step's gain, from its variance
        smooth = self.smooth.repeat_interleave(times)[:, None]
        difference, curve = heads - model, total(spread - mass**2).clamp_min(_LEAST)
        nats = torch.where(smooth, difference**2 / curve / 4, nats)
        weight = torch.where(smooth, (difference / curve / 2).clamp(-1, 1), weight)
        return Gains(torch.where(counts[:, None] < FEWEST, -torch.inf, nats), weight)

    def candidate(self, number: int) -> tuple[int, int]:
        """A candidate's feature and its gate, −1 for none."""
        if number < self.features:
            return number, -1
        return divmod(number - self.features, len(GATES))

    def number(self, feature: int, gate: int) -> int:
        """The candidate of a feature and a gate, −1 for none."""
        return feature if gate < 0 else self.features + feature * len(GATES) + gate


def _columns(pattern: Float[Tensor, "head row key"]) -> Float[ndarray, "cell head"]:
    return np.ascontiguousarray(pattern.flatten(1).T.numpy())


def _counts(code: ndarray, size: int) -> Int[Tensor, " candidate"]:
    return torch.from_numpy(np.bincount(code, minlength=size))


def _logit(share: Float[Tensor, "candidate head"]) -> Float[Tensor, "candidate head"]:
    return torch.logit(share, eps=_LEAST)
