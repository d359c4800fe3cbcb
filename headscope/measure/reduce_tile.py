"""The cells of one look at a layer, and how its rows add them up."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.sink_columns import without_sinks
from headscope.models.engines.engine import Rows

TIE_BOUND = 1.02
"""What attention on two keys and the first token adds up to at most, rounding in half precision
allowed for."""


@dataclass(frozen=True, eq=False)
class TileReduction:
    """The cells that lie in one tile of rows, and how they add up.

    `cells` are the tile's distinct cells of every head, as flat indices into its rows
    `[window head query key]`. `targets` are the places of the target cells among them, the first
    token's left out, and `target_rows` their queries, as flat indices into `[window head query]`.
    `mass` and `hit` are sparse matrices that add weighted cells up by block and relation, targets
    first and controls below them.
    """

    cells: Int[Tensor, "cell head"]
    targets: Int[Tensor, " target"]
    target_rows: Int[Tensor, "target head"]
    mass: Tensor
    hit: Tensor

    def sums(
        self, rows: Rows, resting: Int[ndarray, "window column"], *, logarithms: bool
    ) -> tuple[Tensor, Tensor]:
        """Masses `[2 rows, head]` and arg-max hits `[rows, head]`.

        A target that is the row's largest counts 1; of k equally large keys, wherever they are,
        each counts 1/k, so that a hit does not depend on what else is asked.

        Args:
            rows: the tile's rows, probabilities or their logarithms; they are as before afterwards.
            resting: columns of each window, −1 for none, that are no row's largest.
            logarithms: which of the two they are.
        """
        values = _at(rows, self.cells)
        first = rows[..., 0].clone()
        with without_sinks(rows, resting, logarithms=logarithms):
            largest = rows.amax(-1)
            # attention that is 0 hits nothing
            least = largest.exp() if logarithms else largest
            best = _at(largest.masked_fill(least <= 0, torch.inf), self.target_rows)
            hits = _at(rows, self.cells[self.targets]) >= best
            shares = _shares(hits, self.target_rows, rows, (largest, first), logarithms=logarithms)
        if logarithms:
            values = values.exp_()
        return self.mass @ values, self.hit @ shares

    def to(self, device: torch.device | str) -> TileReduction:
        """The same part with its tensors on a device."""
        return TileReduction(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, eq=False)
class CellReduction:
    """Cells that lie in no row that is read whole: they have masses, and no hits."""

    mass: Tensor

    def sums(
        self,
        cells: Float[Tensor, "cell head"],
        resting: Int[ndarray, "window column"],
        *,
        logarithms: bool,
    ) -> tuple[Tensor, Tensor]:
        """Masses `[2 rows, head]`, and no hit for each row."""
        values = cells.float().exp() if logarithms else cells.float()
        mass = self.mass @ values
        return mass, mass.new_zeros(len(mass) // 2, values.shape[1])

    def to(self, device: torch.device | str) -> CellReduction:
        """The same part with its tensors on a device."""
        return CellReduction(self.mass.to(device))


def _shares(
    hits: Bool[Tensor, "target head"],
    target_rows: Int[Tensor, "target head"],
    rows: Rows,
    largest_and_first: tuple[Tensor, Tensor],
    *,
    logarithms: bool,
) -> Float[Tensor, "target head"]:
    """1/k for each hit in a row of which k keys are the largest, else 0."""
    hit_rows = target_rows[hits]
    largest, first = largest_and_first
    twice = torch.stack([largest, largest, first]).view(3, -1).float()
    # what two keys and the first token cannot share is no tie: few rows are left to be compared
    may_tie = (twice.exp_() if logarithms else twice).sum(0) < TIE_BOUND
    has_hit = torch.zeros_like(may_tie)
    has_hit[hit_rows] = True
    tied_rows = (has_hit & may_tie).nonzero()[:, 0]
    share = torch.ones_like(twice[0])
    keys = rows.reshape(-1, rows.shape[-1]).index_select(0, tied_rows)
    equal = keys == largest.reshape(-1, 1).index_select(0, tied_rows)
    share[tied_rows] = 1 / equal.sum(-1, dtype=torch.int32)
    return hits.float().masked_scatter_(hits, share.index_select(0, hit_rows))


def _at(values: Tensor, places: Int[Tensor, "place head"]) -> Float[Tensor, "place head"]:
    """Elements by flat index, in single precision; faster than indexing with a matrix."""
    return values.reshape(-1).index_select(0, places.view(-1)).view(places.shape).float()
