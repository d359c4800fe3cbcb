"""Sink positions: found where a layer rests, and out of every arg-max."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.measure.sink_positions import (
    LATE,
    find_sink_positions,
    late_tiles,
    without_sinks,
)
from headscope.relations import relations_of

LENGTH, COLUMN, HEADS = 80, 7, 4
TOKENS = ["<bos>", *(f"w{i}" for i in range(LENGTH - 1))]


def windows(count: int = 1) -> list[Window]:
    return [Window(f"w{i}", np.arange(LENGTH), tuple(TOKENS)) for i in range(count)]


def patterns(on_column: float) -> np.ndarray:
    """Every head: so much on one early column, and the rest on the token before."""
    a = np.zeros((HEADS, LENGTH, LENGTH), np.float32)
    for q in range(LENGTH):
        share = on_column if q > COLUMN + 1 else 0.0
        a[:, q, COLUMN] += share
        a[:, q, max(0, q - 1)] += 1 - share
    return a


def rows(a: np.ndarray, *, logarithms: bool) -> list:
    (tile,) = late_tiles(windows())
    own = torch.from_numpy(a)[None][:, :, tile.queries, : tile.keys]
    return [(tile, own.log() if logarithms else own)]


@pytest.mark.parametrize("logarithms", [False, True])
def test_a_column_where_the_layer_rests_is_found_with_its_mass(logarithms):
    found = find_sink_positions(
        windows(), rows(patterns(0.6), logarithms=logarithms), logarithms=logarithms
    )
    assert found.columns.tolist() == [[COLUMN, -1]]
    assert found.mass / LATE == pytest.approx(np.full((1, HEADS), 0.6), abs=1e-5)
    # the rest of a row, over the keys but the first token and the column
    keys = np.arange(LENGTH - LATE, LENGTH)
    expected = (0.4 / (keys - 1)).sum()
    assert found.other == pytest.approx(np.full((1, HEADS), expected), abs=1e-5)


@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("columns", [[[3, -1], [1, 20]], [[], []]])
def test_first_token_and_sinks_are_hidden_for_a_while(columns, logarithms):
    own = torch.rand(2, HEADS, 5, 9)
    before = own.clone()
    hidden = torch.zeros_like(own, dtype=torch.bool)
    for window, keys in enumerate(columns):
        hidden[window, :, :, [0, *(key for key in keys if 0 < key < 9)]] = True
    with without_sinks(own, torch.tensor(columns, dtype=torch.long), logarithms=logarithms):
        assert (own[hidden] < 0).all()
        assert torch.equal(own[~hidden], before[~hidden])
    assert torch.equal(own, before)


def test_a_head_that_rests_and_looks_back_hits_the_token_before():
    run = hs.score_patterns(
        [patterns(0.6)[None]] * 8, [None] * 8, [TOKENS] * 8, types=["positional", "sink"]
    )
    rows = run.evidence.set_index(["relation", "head"])
    assert rows.loc[("offset-1", 0), "hit_rate"] > 0.95
    assert rows.loc[("offset-1", 0), "mass"] == pytest.approx(0.4, abs=0.1)
    assert rows.loc[("position", 0), "mass"] == pytest.approx(0.6, abs=1e-5)
    assert rows.loc[("position", 0), "tagged"]


def test_a_token_that_closes_a_text_is_no_largest_key_beside_sinks():
    """Heads rest on one column, look more at the closing token, and else at the token before."""
    pattern = 0.5 * patterns(0.6)
    pattern[..., -1] += 0.5
    window = replace(windows()[0], attention_kind=BIDIRECTIONAL, ends=1)
    relations = [r for r in relations_of(["positional"], BIDIRECTIONAL) if r.name == "offset-1"]
    run = hs.score_patterns(lambda _: pattern[None], [window] * 8, relations=relations)
    rows = run.evidence.set_index(["relation", "head"])
    assert rows.loc[("offset-1", 0), "mass"] == pytest.approx(0.2, abs=0.05)
    assert rows.loc[("offset-1", 0), "hit_rate"] > 0.95
