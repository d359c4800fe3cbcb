"""Sums of the cells of a tile, beside a slow loop over rows with many equally large keys."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.measure import sparse
from headscope.measure.sparse import TileReduction

WINDOWS, HEADS, LENGTH = 2, 3, 9
SINKS = [[3, -1], [1, 20]]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("logarithms", [False, True])
def test_each_of_equally_large_keys_has_its_share_of_a_hit(logarithms, waits, monkeypatch):
    monkeypatch.setattr(sparse, "_waits", lambda device: waits)
    generator = torch.Generator().manual_seed(0)
    shape = (WINDOWS, HEADS, LENGTH, LENGTH)
    rows = torch.randint(1, 5, shape, generator=generator).float()
    rows /= rows.sum(-1, keepdim=True)
    places = np.random.default_rng(0).choice(WINDOWS * LENGTH**2, 60, replace=False)
    cells = torch.from_numpy(np.stack(np.unravel_index(places, (WINDOWS, LENGTH, LENGTH)), 1))
    cells = cells[cells[:, 2] > 0]  # the first token is no target
    window, query, key = cells.T
    row = (window * HEADS * LENGTH + query)[:, None] + torch.arange(HEADS) * LENGTH
    flat = row * LENGTH + key[:, None]
    each = torch.eye(len(cells)).to_sparse_csr()
    reduction = TileReduction(flat, flat, row, each, each)
    given = rows.log() if logarithms else rows.clone()
    before = given.clone()
    mass, hits = reduction.sums(given, torch.tensor(SINKS), logarithms=logarithms)
    assert torch.equal(given, before)
    expected = torch.zeros_like(hits)
    for i, (w, q, k) in enumerate(cells.tolist()):
        for head in range(HEADS):
            own = rows[w, head, q].clone()
            own[[0, *(key for key in SINKS[w] if 0 < key < LENGTH)]] = -1
            expected[i, head] = float(own[k] == own.max()) / (own == own.max()).sum()
    assert ((expected > 0) & (expected < 1)).any()
    torch.testing.assert_close(hits, expected)
    torch.testing.assert_close(mass, rows[window, :, query, key])
