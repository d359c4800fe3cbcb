"""The cells that relations ask about in a batch, and how they add up."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.batches import Batch
from headscope.corpus.window import Window
from headscope.engine import Block, Rows
from headscope.relations.relation import Found, Relation, find

# torch says once per process that sparse CSR tensors are in beta; the product used here is tested
warnings.filterwarnings("ignore", message="(?s).*Sparse CSR tensor support is in beta")


Looked = tuple[Float[Tensor, "_ head"], Float[Tensor, "_ head"]]


@dataclass(frozen=True, eq=False)
class Sums:
    """What one layer's rows add to the tally: a row per block and relation of the batch."""

    target: Float[ndarray, "row head"]
    control: Float[ndarray, "row head"]
    hits: Float[ndarray, "row head"]


@dataclass(frozen=True, eq=False)
class Part:
    """The cells of one block of rows, as flat indices into the block's tensor."""

    cells: Int[Tensor, "cell head"]
    target_rows: Int[Tensor, "target head"]
    """The row of each target cell, among the rows `[window head query]` of the block."""


@dataclass(frozen=True, eq=False)
class Selection:
    """All cells that the relations of a batch look at, and how they add up.

    Cells are distinct and in the order of the blocks. `mass` and `hit` are sparse matrices that
    add weighted cells up by block and relation, targets first and controls below them; `targets`
    are the places of the target cells among all cells, the first token's left out: it is where
    heads rest.
    """

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    guesses: Int[ndarray, "row rule"]
    parts: tuple[Part, ...]
    targets: Int[Tensor, " target"]
    mass: Tensor
    hit: Tensor

    def look(self, number: int, rows: Rows) -> Looked:
        """What the cells of block `number` hold, and the most that their queries give to any key.

        The first token is left out of the latter: it is where heads rest.
        """
        part = self.parts[number]
        best = rows[..., 1:].amax(-1).reshape(-1)
        return rows.reshape(-1)[part.cells].float(), best[part.target_rows].float()

    def sums(self, looked: Sequence[Looked], *, logarithms: bool) -> Sums:
        """Targets, controls and arg-max hits of every head, summed by block and relation.

        Args:
            looked: what `look` returned for each block, in order.
            logarithms: whether the rows held logarithms of probabilities.
        """
        values, best = (torch.cat(each) for each in zip(*looked, strict=True))
        hits = values[self.targets] >= best
        if logarithms:
            values, best = values.exp_(), best.exp_()
        hits &= best > 0  # attention that is 0 hits nothing
        mass = _numpy(self.mass @ values)
        size = len(self.block)
        return Sums(mass[:size], mass[size:], _numpy(self.hit @ hits.float()))

    def to(self, device: torch.device | str) -> Selection:
        """The same selection with its tensors on a device."""
        return replace(
            self,
            **{name: getattr(self, name).to(device) for name in ("targets", "mass", "hit")},
            parts=tuple(
                Part(part.cells.to(device), part.target_rows.to(device)) for part in self.parts
            ),
        )


def select(
    batch: Batch, relations: Sequence[Relation], blocks: Sequence[Block], *, heads: int, seed: int
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
    targets_below = targets.take(targets.cell % length > 0)
    cells = _distinct(np.concatenate([targets.cell, controls.cell]))
    target_cells = _distinct(targets_below.cell)
    both = _Side(
        np.concatenate([targets.row, controls.row + len(rows)]),
        np.concatenate([targets.cell, controls.cell]),
        np.concatenate([targets.weight, controls.weight]),
    )

    def total(values: Sequence[Any]) -> ndarray:
        summed = np.zeros((len(rows), *np.shape(values[0])))
        np.add.at(summed, row_of, np.array(values))
        return summed

    results = [result for *_, result in found]
    return Selection(
        block=rows // len(relations),
        relation=rows % len(relations),
        queries=total([len(result.targets.queries) for result in results]).astype(np.int64),
        chance=total([_chance(result) for result in results]),
        guesses=total([result.guesses for result in results]).astype(np.int64),
        parts=tuple(_part(block, cells, target_cells, length, heads) for block in blocks),
        targets=torch.from_numpy(np.searchsorted(cells, target_cells)),
        mass=both.matrix(2 * len(rows), cells),
        hit=targets_below.matrix(len(rows), target_cells),
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


def _part(
    block: Block, cells: Int[ndarray, " cell"], targets: Int[ndarray, " target"], length: int,
    heads: int,
) -> Part:  # fmt: skip
    """The cells of a block; blocks follow each other as cells do, so that each has a slice."""
    first, last = block.windows.start, block.windows.stop - 1
    start = (first * length + block.queries.start) * length
    end = (last * length + block.queries.stop) * length
    own, targets = (
        x[np.searchsorted(x, start) : np.searchsorted(x, end)] for x in (cells, targets)
    )

    def rows(cell: ndarray) -> Tensor:
        window, query = np.divmod(cell // length, length)
        head = np.arange(heads)
        queries = block.queries.stop - block.queries.start
        flat = ((window - first) * heads)[:, None] + head
        return torch.from_numpy(flat * queries + (query - block.queries.start)[:, None])

    return Part(rows(own) * block.keys + torch.from_numpy(own % length)[:, None], rows(targets))


def _find_all(
    window: Window, relations: Sequence[Relation], seed: int
) -> Iterator[tuple[int, Found]]:
    text = _number("\0".join(window.strings))
    for index, relation in enumerate(relations):
        # each relation has its own stream: leaving a type out changes no other type's draws
        rng = np.random.default_rng([seed, text, _number(relation.id)])
        result = find(relation, window, rng)
        if result is not None:
            yield index, result


def _number(text: str) -> int:
    """A number that stands for a text, on every machine the same."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())


def _side(
    found: Sequence[tuple[int, int, int, Found]], row_of: ndarray, side: str, length: int
) -> _Side:
    parts = [getattr(result, side) for *_, result in found]
    cells = [
        (window * length + part.query) * length + part.key
        for (window, *_), part in zip(found, parts, strict=True)
    ]
    row = np.repeat(row_of, [len(part) for part in parts])
    return _Side(row, np.concatenate(cells), np.concatenate([part.weight for part in parts]))


def _distinct(cells: Int[ndarray, " pair"]) -> Int[ndarray, " cell"]:
    """Sorted distinct cells; numpy's own `unique` hashes, which is slower for these."""
    ordered = np.sort(cells)
    return ordered[np.diff(ordered, prepend=-1) > 0]


def _chance(found: Found) -> float:
    """The mass of a uniform head, summed over queries: a query at q spreads over q + 1 keys."""
    return float((found.targets.weight / (found.targets.query + 1)).sum())


def _numpy(sums: Tensor) -> ndarray:
    return sums.cpu().double().numpy()
