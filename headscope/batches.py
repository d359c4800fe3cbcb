"""Windows to batches, and a batch's pairs to one gather and one sparse product per layer."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.relations.relation import GUESSES, Found, Relation, find

# torch says once per process that sparse CSR tensors are in beta; the product used here is tested
warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")


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

    `cells` are the distinct cells as flat indices into one head's `[window query key]`, in
    memory order; `mass` and `hit` are sparse matrices that sum weighted cells into rows.
    """

    block: Int[ndarray, " row"]
    relation: Int[ndarray, " row"]
    queries: Int[ndarray, " row"]
    chance: Float[ndarray, " row"]
    guesses: Int[ndarray, "row rule"]
    window: Int[Tensor, " cell"]
    query: Int[Tensor, " cell"]
    key: Int[Tensor, " cell"]
    mass: Tensor
    hit: Tensor

    def sums(self, pattern: Float[Tensor, "window head query key"]) -> Sums:
        """Targets, controls and arg-max hits of every head, summed by block and relation."""
        heads, queries, keys = pattern.shape[1:]
        head = torch.arange(heads, device=pattern.device)[:, None]
        row = (self.window * heads + head) * queries + self.query
        values = pattern.reshape(-1)[row * keys + self.key].float()
        # the first token is left out: it is where heads rest
        best = pattern[..., 1:].max(dim=-1)
        best_key = torch.where(best.values > 0, best.indices + 1, 0).reshape(-1)[row]
        hits = (best_key == self.key) & (self.key > 0)
        mass = (self.mass @ values.T).cpu().double().numpy()
        rows = len(self.block)
        return Sums(mass[:rows], mass[rows:], (self.hit @ hits.float().T).cpu().double().numpy())

    def to(self, device: torch.device | str) -> Selection:
        """The same selection with its tensors on a device."""
        moved = {n: getattr(self, n).to(device) for n in ("window", "query", "key", "mass", "hit")}
        return Selection(**{**vars(self), **moved})


def select(batch: Batch, relations: Sequence[Relation], seed: int) -> Selection | None:
    """Find and draw all pairs of a batch; None when there are none.

    Draws are seeded by the run's seed and the window's own tokens, so that they do not depend on
    batches or on the order of documents.
    """
    found = [
        (row, int(block), index, result)
        for row, (window, block) in enumerate(zip(batch.windows, batch.blocks, strict=True))
        for index, result in _find_all(window, relations, seed)
    ]
    if not found:
        return None
    owners = np.array([(block, index) for _, block, index, _ in found])
    rows, row_of = np.unique(owners, axis=0, return_inverse=True)
    count, length = len(rows), max(map(len, batch.windows))
    sides = [_side(found, row_of, name, length) for name in ("targets", "controls")]
    cells = np.unique(np.concatenate([cell for _, cell, _ in sides]))
    mass_rows = np.concatenate([sides[0][0], sides[1][0] + count])
    mass_cells = np.searchsorted(cells, np.concatenate([sides[0][1], sides[1][1]]))
    mass_weights = np.concatenate([sides[0][2], sides[1][2]])
    hit_cells = np.searchsorted(cells, sides[0][1])

    def total(values: Sequence[ndarray | float]) -> ndarray:
        summed = np.zeros((count, *np.shape(values[0])))
        np.add.at(summed, row_of, np.array(values))
        return summed

    return Selection(
        block=rows[:, 0],
        relation=rows[:, 1],
        queries=total([len(f.targets.queries) for *_, f in found]).astype(np.int64),
        chance=total([_chance(f) for *_, f in found]),
        guesses=total([f.guesses for *_, f in found]).astype(np.int64).reshape(count, GUESSES),
        window=torch.from_numpy(cells // (length * length)),
        query=torch.from_numpy(cells // length % length),
        key=torch.from_numpy(cells % length),
        mass=_sparse(mass_rows, mass_cells, mass_weights, (2 * count, len(cells))),
        hit=_sparse(sides[0][0], hit_cells, sides[0][2], (count, len(cells))),
    )


def _find_all(
    window: Window, relations: Sequence[Relation], seed: int
) -> Iterator[tuple[int, Found]]:
    digest = hashlib.blake2b(window.tokens.tobytes(), digest_size=8).digest()
    for index, relation in enumerate(relations):
        # each relation has its own stream: leaving a type out changes no other type's draws
        name = int.from_bytes(hashlib.blake2b(relation.id.encode(), digest_size=8).digest(), "big")
        rng = np.random.default_rng([seed, int.from_bytes(digest, "big"), name])
        result = find(relation, window, rng)
        if result is not None:
            yield index, result


def _side(
    found: Sequence[tuple[int, int, int, Found]], row_of: ndarray, side: str, length: int
) -> tuple[ndarray, ndarray, ndarray]:
    """Row, flat cell and weight of every pair on one side."""
    parts = [getattr(result, side) for *_, result in found]
    row = np.repeat(row_of, [len(part) for part in parts])
    cell = np.concatenate(
        [
            (window * length + part.query) * length + part.key
            for (window, *_), part in zip(found, parts, strict=True)
        ]
    )
    return row, cell, np.concatenate([part.weight for part in parts])


def _chance(found: Found) -> float:
    """The mass of a uniform head, summed over queries: a query at q spreads over q + 1 keys."""
    return float((found.targets.weight / (found.targets.query + 1)).sum())


def _sparse(row: ndarray, column: ndarray, weight: ndarray, shape: tuple[int, int]) -> Tensor:
    order = np.argsort(row, kind="stable")
    starts = np.searchsorted(row[order], np.arange(shape[0] + 1))
    return torch.sparse_csr_tensor(
        torch.from_numpy(starts),
        torch.from_numpy(column[order]),
        torch.from_numpy(weight[order]).float(),
        size=shape,
        check_invariants=False,
    )
