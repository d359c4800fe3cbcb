"""The cells that relations ask about in a batch, and how they add up."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.resting import left_out
from headscope.measure.tally import grained
from headscope.models.engines.engine import Rows, Tile
from headscope.relations.pairs import distinct_values
from headscope.relations.relation import PairSet, Relation, find

ROOM = 1.02
"""What attention on two keys and the first token adds up to at most, rounding in half precision
allowed for."""

# torch says once per process that sparse CSR tensors are in beta; the product used here is tested
warnings.filterwarnings("ignore", message="(?s).*Sparse CSR tensor support is in beta")


@dataclass(frozen=True, eq=False)
class Sums:
    """What one layer's rows add to the tally: a row per block and relation of the batch."""

    target: Float[ndarray, "row head"]
    control: Float[ndarray, "row head"]
    hits: Float[ndarray, "row head"]


@dataclass(frozen=True, eq=False)
class Part:
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
        with left_out(rows, resting, logarithms=logarithms):
            # the largest but the first token's, which is where heads rest
            largest = rows[..., 1:].amax(-1)
            best = _at(largest, self.target_rows)
            hits = _at(rows, self.cells[self.targets]) >= best
            # attention that is 0 hits nothing
            hits &= (best.exp() if logarithms else best) > 0
            shares = _shares(hits, self.target_rows, rows, largest, logarithms=logarithms)
        if logarithms:
            values = values.exp_()
        return self.mass @ values, self.hit @ shares

    def to(self, device: torch.device | str) -> Part:
        """The same part with its tensors on a device."""
        return Part(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Selection:
    """All cells that the relations of a batch look at, tile by tile."""

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    parts: tuple[Part, ...]

    def sums(self, parts: Sequence[tuple[Tensor, Tensor]]) -> Sums:
        """What all parts found, summed by block and relation."""
        mass, hits = (_numpy(sum(each, torch.zeros(()))) for each in zip(*parts, strict=True))
        rows = len(self.block)
        return Sums(mass[:rows], mass[rows:], hits)

    def to(self, device: torch.device | str) -> Selection:
        """The same selection with its tensors on a device."""
        return replace(self, parts=tuple(part.to(device) for part in self.parts))


def select(
    batch: Batch, relations: Sequence[Relation], tiles: Sequence[Tile], *, heads: int, seed: int
) -> Selection | None:
    """Find and draw all pairs of a batch; None when there are none.

    Draws are seeded by the run's seed and the window's own text, so that they do not depend on
    batches or on the order of documents.
    """
    found = [
        (row, int(block), index, result)
        for row, (window, block) in enumerate(zip(batch.windows, batch.blocks, strict=True))
        for index, result in _find_all(window, relations, seed)
    ]
    if not found:
        return None
    rows, row_of = np.unique(
        [block * len(relations) + index for _, block, index, _ in found], return_inverse=True
    )
    length = max(map(len, batch.windows))
    targets, controls = (_side(found, row_of, side, length) for side in ("targets", "controls"))
    both = _Side(
        np.concatenate([targets.row, controls.row + len(rows)]),
        np.concatenate([targets.cell, controls.cell]),
        np.concatenate([targets.weight, controls.weight]),
    )
    sides = (both, targets.take(targets.cell % length > 0))
    shape = (len(rows), length, heads)

    def total(values: Sequence[Any]) -> ndarray:
        summed = np.zeros((len(rows), *np.shape(values[0])))
        np.add.at(summed, row_of, np.array(values))
        return summed

    results = [result for *_, result in found]
    return Selection(
        block=rows // len(relations),
        relation=rows % len(relations),
        queries=total([len(result.targets.queries) for result in results]).astype(np.int64),
        chance=grained(total([_chance(result) for result in results])),
        parts=tuple(_part(tile, *sides, shape) for tile in tiles),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """Weighted cells `(window query key)`, flat within one head, and the row each belongs to."""

    row: Int[ndarray, " pair"]
    cell: Int[ndarray, " pair"]
    weight: Float[ndarray, " pair"]

    def take(self, which: ndarray) -> _Side:
        return _Side(self.row[which], self.cell[which], self.weight[which])

    def matrix(self, rows: int, cells: Int[ndarray, " cell"]) -> Tensor:
        """The sparse matrix `[row cell]` of the weights."""
        order = np.argsort(self.row, kind="stable")
        return torch.sparse_csr_tensor(
            torch.from_numpy(np.searchsorted(self.row[order], np.arange(rows + 1))),
            torch.from_numpy(np.searchsorted(cells, self.cell[order])),
            torch.from_numpy(self.weight[order]).float(),
            size=(rows, len(cells)),
            check_invariants=False,
        )


def _part(tile: Tile, all_cells: _Side, targets: _Side, shape: tuple[int, int, int]) -> Part:
    rows, length, heads = shape
    first, last = tile.windows.start, tile.windows.stop - 1
    # tiles follow each other as cells do
    start = (first * length + tile.queries.start) * length
    end = (last * length + tile.queries.stop) * length
    all_cells, targets = (
        each.take((each.cell >= start) & (each.cell < end)) for each in (all_cells, targets)
    )
    cells, target_cells = distinct_values(all_cells.cell), distinct_values(targets.cell)
    queries = tile.shape[1]
    head = torch.arange(heads) * queries

    def row(cell: ndarray) -> Int[ndarray, " cell"]:
        """Its place among the rows of head 0."""
        window, query = np.divmod(cell // length, length)
        return np.asarray((window - first) * heads * queries + query - tile.queries.start)

    flat = torch.from_numpy(row(cells) * tile.keys + cells % length)
    return Part(
        cells=flat[:, None] + head * tile.keys,
        targets=torch.from_numpy(np.searchsorted(cells, target_cells)),
        target_rows=torch.from_numpy(row(target_cells))[:, None] + head,
        mass=all_cells.matrix(2 * rows, cells),
        hit=targets.matrix(rows, target_cells),
    )


def _find_all(
    window: Window, relations: Sequence[Relation], seed: int
) -> Iterator[tuple[int, PairSet]]:
    text = _number("\0".join(window.strings))
    for index, relation in enumerate(relations):
        # each relation has its own stream: leaving a type out changes no other type's draws
        result = find(relation, window, [seed, text, _relation_number(relation.id)])
        if result is not None:
            yield index, result


@lru_cache
def _relation_number(name: str) -> int:
    return _number(name)


def _number(text: str) -> int:
    """A number that stands for a text, on every machine the same."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


def _side(
    found: Sequence[tuple[int, int, int, PairSet]], row_of: ndarray, side: str, length: int
) -> _Side:
    parts = [getattr(result, side) for *_, result in found]
    cells = [
        (window * length + part.query) * length + part.key
        for (window, *_), part in zip(found, parts, strict=True)
    ]
    row = np.repeat(row_of, [len(part) for part in parts])
    return _Side(row, np.concatenate(cells), np.concatenate([part.weight for part in parts]))


def _chance(found: PairSet) -> float:
    """The mass of a uniform head, summed over queries: a query at q spreads over q + 1 keys."""
    return float((found.targets.weight / (found.targets.query + 1)).sum())


def _shares(
    hits: Bool[Tensor, "target head"],
    target_rows: Int[Tensor, "target head"],
    rows: Rows,
    largest: Float[Tensor, "window head query"],
    *,
    logarithms: bool,
) -> Float[Tensor, "target head"]:
    """1/k for each hit in a row of which k keys are the largest, else 0."""
    places = target_rows[hits]
    twice = torch.stack([largest, largest, rows[..., 0]]).view(3, -1).float()
    # what two keys and the first token cannot share is no tie: few rows are left to be compared
    room = (twice.exp_() if logarithms else twice).sum(0) < ROOM
    asked = torch.zeros_like(room)
    asked[places] = True
    own = (asked & room).nonzero()[:, 0]
    share = torch.ones_like(twice[0])
    keys = rows.reshape(-1, rows.shape[-1]).index_select(0, own)[:, 1:]
    equal = keys == largest.reshape(-1, 1).index_select(0, own)
    share[own] = 1 / equal.sum(-1, dtype=torch.int32)
    return hits.float().masked_scatter_(hits, share.index_select(0, places))


def _at(values: Tensor, places: Int[Tensor, "place head"]) -> Float[Tensor, "place head"]:
    """Elements by flat index, in single precision; faster than indexing with a matrix."""
    return values.reshape(-1).index_select(0, places.view(-1)).view(places.shape).float()


def _numpy(sums: Tensor) -> ndarray:
    return grained(sums.cpu().double().numpy())
