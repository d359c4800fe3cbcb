"""Sparse matrices that add up cells by group, and the cells of a tile of rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.sink_positions import without_sinks
from headscope.models.engines.engine import Rows

# torch says that sparse tensors are in beta and unchecked; the product used here is tested
warnings.filterwarnings("ignore", message="(?s).*Sparse (CSR|invariant)")


def summing_matrix(
    group: Int[ndarray, " entry"],
    cell: Int[ndarray, " entry"],
    weight: Float[ndarray, " entry"],
    shape: tuple[int, int],
) -> Tensor:
    """The sparse matrix `[group cell]` of the weights, in single precision."""
    order = np.argsort(group, kind="stable")
    return torch.sparse_csr_tensor(
        torch.from_numpy(np.searchsorted(group[order], np.arange(shape[0] + 1))),
        torch.from_numpy(cell[order]),
        torch.from_numpy(weight[order]).float(),
        size=shape,
        check_invariants=False,
    )


class CellSums(NamedTuple):
    """Sums of cells by block and relation."""

    mass: Float[Tensor, "side_row head"]
    """Attention, on targets and below them on controls."""
    hits: Float[Tensor, "row head"]
    """Targets that are the largest of their rows."""


@dataclass(frozen=True, eq=False)
class EntryReduction:
    """The single cells that a request reads, and how they add up; they have no hits."""

    mass: Tensor
    """A sparse matrix that adds weighted cells up by block and relation, controls below targets."""

    def sums(
        self, cells: Float[Tensor, "cell head"], sinks: Tensor, *, logarithms: bool
    ) -> CellSums:
        """The sums of the cells' attention; see `TileReduction.sums`."""
        values = cells.float()
        attention = values.exp() if logarithms else values
        mass = self.mass @ attention
        rows = len(mass) // 2
        return CellSums(mass, hits=mass.new_zeros(rows, mass.shape[1]))

    def to(self, device: torch.device | str) -> EntryReduction:
        """The same part with its matrix on a device."""
        return EntryReduction(self.mass.to(device))


@dataclass(frozen=True, eq=False)
class TileReduction:
    """The cells that lie in one tile of rows, and how they add up.

    `cells` are the tile's distinct cells of every head, as flat indices into its rows
    `[window head query key]`; `targets` are those of the target cells, the first token's left out,
    and `target_rows` their queries, as flat indices into `[window head query]`. `mass` and `hit`
    are sparse matrices that add weighted cells up by block and relation; controls lie below the
    targets of `mass`.
    """

    cells: Int[Tensor, "cell head"]
    targets: Int[Tensor, "target head"]
    target_rows: Int[Tensor, "target head"]
    mass: Tensor
    hit: Tensor

    def sums(
        self, rows: Rows, sinks: Int[Tensor, "window column"], *, logarithms: bool
    ) -> CellSums:
        """The sums of the cells' attention, and of the hits of targets.

        A target that is the row's largest counts 1; of k equally large keys, wherever they are,
        each counts 1/k, so that a hit does not depend on what else is asked.

        Args:
            rows: the tile's rows, probabilities or their logarithms; they are as before afterwards.
            sinks: sink positions of each window, −1 for none; never the largest of a row.
            logarithms: whether rows are logarithms.
        """
        rows = rows.contiguous()
        values = _at(rows, self.cells)
        with without_sinks(rows, sinks, logarithms=logarithms):
            largest = rows.amax(-1)
            # attention that is 0 hits nothing
            least = largest.exp() if logarithms else largest
            to_reach = largest.masked_fill(least <= 0, torch.inf)
            is_hit = _at(rows, self.targets) >= _at(to_reach, self.target_rows)
            if _waits(rows.device):
                # one pass over all cells is ten times the work, but an accelerator need not wait
                # for a count
                count = (rows == largest[..., None]).sum(-1).view(-1)
                of_targets = count[self.target_rows.view(-1)].view(self.target_rows.shape)
                shares = is_hit / of_targets.clamp_min(1)
            else:
                shares = self._shares(is_hit.view(-1).nonzero()[:, 0], rows, largest)
        if logarithms:
            values = values.exp_()
        return CellSums(mass=self.mass @ values, hits=self.hit @ shares)

    def _shares(
        self,
        hits: Int[Tensor, " hit"],
        rows: Rows,
        largest: Float[Tensor, "window head query"],
    ) -> Float[Tensor, "target head"]:
        """1/k for each hit in a row of which k keys are the largest, else 0.

        Hits are flat indices into `targets`.
        """
        # hits in each row, which may have several
        cells = self.targets.view(-1)[hits]
        hit_rows = self.target_rows.view(-1)[hits]
        flat = rows.view(-1)
        largest = largest.view(-1)
        count = torch.zeros_like(largest, dtype=torch.float32)
        ones = torch.ones_like(hit_rows, dtype=torch.float32)
        count.index_add_(0, hit_rows, ones)
        # if a row without its hits has the same maximum, other keys are as large: a rare case
        flat.index_fill_(0, cells, -torch.inf)
        largest_of_others = rows.amax(-1).view(-1)
        is_tied = (largest_of_others == largest) & (count > 0)
        tied = is_tied.nonzero()[:, 0]
        tied_rows = rows.view(len(largest), -1)[tied]
        equal = tied_rows == largest[tied, None]
        count[tied] += equal.sum(-1)
        flat.index_copy_(0, cells, largest[hit_rows])
        shares = torch.zeros_like(self.targets, dtype=torch.float32)
        shares.view(-1)[hits] = 1 / count[hit_rows]
        return shares

    def to(self, device: torch.device | str) -> TileReduction:
        """The same part with its tensors on a device."""
        return TileReduction(
            cells=self.cells.to(device),
            targets=self.targets.to(device),
            target_rows=self.target_rows.to(device),
            mass=self.mass.to(device),
            hit=self.hit.to(device),
        )


def _waits(device: torch.device) -> bool:
    """True if the number of hits would have to be fetched from a device, which then stalls."""
    return device.type != "cpu"


def _at(values: Tensor, places: Int[Tensor, "place head"]) -> Float[Tensor, "place head"]:
    """Elements by flat index, in single precision; faster than indexing with a matrix."""
    return values.reshape(-1).index_select(0, places.view(-1)).view(places.shape).float()
