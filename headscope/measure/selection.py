"""The cells that relations ask about in a batch, and how they add up."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.reduce_tile import CellReduction, TileReduction
from headscope.measure.row_requests import hit_shares, request_of_cell, row_requests
from headscope.measure.tally import grained
from headscope.models.engines.engine import Entries, PatternRegion, QueryRows, Tile
from headscope.relations.pairs import distinct_values
from headscope.relations.relation import PairSet, Relation, find

# torch says once per process that sparse CSR tensors are in beta; the product used here is tested
warnings.filterwarnings("ignore", message="(?s).*Sparse CSR tensor support is in beta")


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over one layer's rows, a row per block and relation of the batch."""

    target: Float[ndarray, "row head"]
    control: Float[ndarray, "row head"]
    hits: Float[ndarray, "row head"]


@dataclass(frozen=True, eq=False)
class Selection:
    """All cells that the relations of a batch look at, tile by tile."""

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    requests: tuple[PatternRegion, ...]
    """Attention that is read of each layer: the tiles; of long windows some rows and cells."""
    reductions: tuple[TileReduction | CellReduction, ...]
    """Of each request how its values add up."""

    def sums(self, values: Sequence[tuple[Tensor, Tensor]]) -> Sums:
        """The values of all requests, summed by block and relation."""
        mass, hits = (_numpy(sum(part, torch.zeros(()))) for part in zip(*values, strict=True))
        rows = len(self.block)
        return Sums(mass[:rows], mass[rows:], hits)

    def to(self, device: torch.device | str) -> Selection:
        """The same selection with its tensors on a device."""
        return replace(
            self, reductions=tuple(reduction.to(device) for reduction in self.reductions)
        )


def select(
    batch: Batch, relations: Sequence[Relation], tiles: Sequence[Tile], *, heads: int, seed: int
) -> Selection | None:
    """Find and draw all pairs of a batch; None when there are none.

    Draws are seeded by the run's seed and the window's own text, so that they do not depend on
    batches or on the order of documents.
    """
    pairs_found = [
        (row, int(block), index, result)
        for row, (window, block) in enumerate(zip(batch.windows, batch.blocks, strict=True))
        for index, result in find_all(window, relations, seed)
    ]
    if not pairs_found:
        return None
    rows, row_of = np.unique(
        [block * len(relations) + index for _, block, index, _ in pairs_found], return_inverse=True
    )
    length = max(map(len, batch.windows))
    targets, controls = (
        _side(pairs_found, row_of, side, length) for side in ("targets", "controls")
    )
    both = _Side(
        np.concatenate([targets.row, controls.row + len(rows)]),
        np.concatenate([targets.cell, controls.cell]),
        np.concatenate([targets.weight, controls.weight]),
    )
    shares = [
        hit_shares(batch.windows[window], result.targets) for window, *_, result in pairs_found
    ]
    hits = replace(targets, weight=targets.weight * np.concatenate(shares))
    hits = hits.take((hits.cell % length > 0) & (hits.weight > 0))
    requests = row_requests(batch.windows, tiles, hits.cell // length, both.cell, heads=heads)
    results = [result for *_, result in pairs_found]

    def total(values: Sequence[Any]) -> ndarray:
        summed = np.zeros((len(rows), *np.shape(values[0])))
        np.add.at(summed, row_of, np.array(values))
        return summed

    return Selection(
        block=rows // len(relations),
        relation=rows % len(relations),
        queries=total([len(result.targets.queries) for result in results]).astype(np.int64),
        chance=grained(
            total([_chance(batch.windows[window], result) for window, *_, result in pairs_found])
        ),
        requests=requests,
        reductions=tuple(_reductions(requests, both, hits, (len(rows), length, heads))),
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


def _reductions(
    requests: Sequence[PatternRegion], cells: _Side, hits: _Side, shape: tuple[int, int, int]
) -> Iterator[TileReduction | CellReduction]:
    """The reduction of each request's values; every cell belongs to one of them."""
    rows, length, _ = shape
    of_cells, of_hits = (
        _split(request_of_cell(requests, side.cell, length), len(requests))
        for side in (cells, hits)
    )
    for request, cell_rows, hit_rows in zip(requests, of_cells, of_hits, strict=True):
        if isinstance(request, Entries):
            flat = (request.window * length + request.queries) * length + request.keys
            yield CellReduction(cells.take(cell_rows).matrix(2 * rows, flat))
        else:
            yield _tile_reduction(request, cells.take(cell_rows), hits.take(hit_rows), shape)


def _split(owner: Int[ndarray, " cell"], count: int) -> list[ndarray]:
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.searchsorted(owner[order], np.arange(1, count)))


def _tile_reduction(
    request: Tile | QueryRows, all_cells: _Side, targets: _Side, shape: tuple[int, int, int]
) -> TileReduction:
    rows, length, heads = shape
    cells, target_cells = distinct_values(all_cells.cell), distinct_values(targets.cell)
    queries = request.shape[1]
    head = torch.arange(heads) * queries

    def row(cell: ndarray) -> Int[ndarray, " cell"]:
        """Its place among the rows of head 0."""
        window, query = np.divmod(cell // length, length)
        if isinstance(request, QueryRows):
            return np.searchsorted(request.queries, query)
        first = request.windows.start
        return np.asarray((window - first) * heads * queries + query - request.queries.start)

    flat = torch.from_numpy(row(cells) * request.keys + cells % length)
    return TileReduction(
        cells=flat[:, None] + head * request.keys,
        targets=torch.from_numpy(np.searchsorted(cells, target_cells)),
        target_rows=torch.from_numpy(row(target_cells))[:, None] + head,
        mass=all_cells.matrix(2 * rows, cells),
        hit=targets.matrix(rows, target_cells),
    )


def find_all(
    window: Window, relations: Sequence[Relation], seed: int
) -> Iterator[tuple[int, PairSet]]:
    """Cells of each relation that has some in a window, with the place of the relation.

    Draws are seeded by the run's seed, the relation and the window's own text.
    """
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
    pairs_found: Sequence[tuple[int, int, int, PairSet]], row_of: ndarray, side: str, length: int
) -> _Side:
    parts = [getattr(result, side) for *_, result in pairs_found]
    cells = [
        (window * length + part.query) * length + part.key
        for (window, *_), part in zip(pairs_found, parts, strict=True)
    ]
    row = np.repeat(row_of, [len(part) for part in parts])
    return _Side(row, np.concatenate(cells), np.concatenate([part.weight for part in parts]))


def _chance(window: Window, pairs: PairSet) -> float:
    """The mass of a head that spreads evenly over the keys of each row, summed over queries."""
    targets = pairs.targets
    return float((targets.weight / window.keys_seen(targets.query)).sum())


def _numpy(sums: Tensor) -> ndarray:
    return grained(sums.cpu().double().numpy())
