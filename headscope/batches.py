"""Windows to batches, and a batch's pairs to one gather and one sparse product per layer."""

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

from headscope.corpus.window import Window
from headscope.relations.relation import Found, Relation, find

# torch says once per process that sparse CSR tensors are in beta; the product used here is tested
warnings.filterwarnings("ignore", message="(?s).*Sparse CSR tensor support is in beta")


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows that run together, right-padded, each with its block."""

    windows: Sequence[Window]
    blocks: Int[ndarray, " window"]
    profiled: Sequence[int]
    """Rows whose head profile is taken."""

    def tokens(self) -> Int[Tensor, "window position"]:
        """Token ids, padded on the right with the beginning-of-text token."""
        longest = max(map(len, self.windows))
        ids = np.full((len(self.windows), longest), self.windows[0].tokens[0])
        for row, window in enumerate(self.windows):
            ids[row, : len(window)] = window.tokens
        return torch.from_numpy(ids)


def batches(
    windows: Sequence[Window], blocks: Int[ndarray, " window"], profiled: set[int], *, tokens: int
) -> Iterator[Batch]:
    """Batches of about `tokens` tokens each, padding included, the longest windows first."""
    order = sorted(range(len(windows)), key=lambda i: -len(windows[i]))
    start = 0
    while start < len(order):
        size = max(1, tokens // len(windows[order[start]]))
        rows = order[start : start + size]
        yield Batch(
            [windows[i] for i in rows],
            blocks[rows],
            [row for row, i in enumerate(rows) if i in profiled],
        )
        start += size


@dataclass(frozen=True, eq=False)
class Sums:
    """What one layer's pattern adds to the tally: a row per block and relation of the batch."""

    target: Float[ndarray, "row head"]
    control: Float[ndarray, "row head"]
    hits: Float[ndarray, "row head"]


@dataclass(frozen=True, eq=False)
class Selection:
    """All cells that the relations of a batch look at, and how they add up.

    `cells` are the distinct cells of every head, in memory order, as flat indices into a
    pattern; `target_rows` and `target_keys` the same for target cells alone, as the flat index
    of the query's row and the key. `mass` and `hit` are sparse matrices that add weighted cells
    up by block and relation, targets first and controls below them.
    """

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    guesses: Int[ndarray, "row rule"]
    cells: Int[Tensor, "cell head"]
    target_rows: Int[Tensor, "target head"]
    target_keys: Int[Tensor, "target 1"]
    mass: Tensor
    hit: Tensor

    def sums(self, pattern: Float[Tensor, "window head query key"]) -> Sums:
        """Targets, controls and arg-max hits of every head, summed by block and relation."""
        values = pattern.reshape(-1)[self.cells].float()
        mass = _numpy(self.mass @ values)
        # the first token is left out: it is where heads rest
        best = pattern[..., 1:].max(dim=-1)
        best_key = torch.where(best.values > 0, best.indices + 1, 0).reshape(-1)
        hits = (best_key[self.target_rows] == self.target_keys) & (self.target_keys > 0)
        rows = len(self.block)
        return Sums(mass[:rows], mass[rows:], _numpy(self.hit @ hits.float()))

    def to(self, device: torch.device | str) -> Selection:
        """The same selection with its tensors on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if _is_tensor(value)}
        return replace(self, **moved)


def select(
    batch: Batch, relations: Sequence[Relation], *, heads: int, seed: int
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
    cells = _distinct(np.concatenate([targets.cell, controls.cell]))
    target_cells = _distinct(targets.cell)
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
        cells=_in_every_head(cells // length, length, heads) * length
        + torch.from_numpy(cells % length)[:, None],
        target_rows=_in_every_head(target_cells // length, length, heads),
        target_keys=torch.from_numpy(target_cells % length)[:, None],
        mass=both.matrix(2 * len(rows), cells),
        hit=targets.matrix(len(rows), target_cells),
    )


@dataclass(frozen=True, eq=False)
class _Side:
    """Weighted cells `(window query key)`, flat within one head, and the row each belongs to."""

    row: Int[ndarray, " pair"]
    cell: Int[ndarray, " pair"]
    weight: Float[ndarray, " pair"]

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


def _in_every_head(row: Int[ndarray, " cell"], length: int, heads: int) -> Int[Tensor, "cell head"]:
    """Flat `(window query)` rows as flat rows of a pattern `[window head query key]`."""
    window, query = torch.from_numpy(row // length), torch.from_numpy(row % length)
    return (window[:, None] * heads + torch.arange(heads)) * length + query[:, None]


def _chance(found: Found) -> float:
    """The mass of a uniform head, summed over queries: a query at q spreads over q + 1 keys."""
    return float((found.targets.weight / (found.targets.query + 1)).sum())


def _numpy(sums: Tensor) -> ndarray:
    return sums.cpu().double().numpy()


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)
