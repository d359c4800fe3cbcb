"""Preference for targets at hard and easy queries, against a loop over cells."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.measure.batches import assign_blocks
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.layer_reader import ReaderConfig, read_layer, shared_requests
from headscope.measure.preference_reader import preference_reader
from headscope.measure.reading import sum_cells
from headscope.measure.selection import find_all
from headscope.measure.sink_positions import LATE, SHORTEST, late_tiles
from headscope.measure.tally import Tally
from headscope.models.engines.engine import Entries, Tile, slice_pattern
from headscope.models.load import load_model
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import relations_of
from headscope.relations.parts import ComparedPart
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs

LAYERS, HEADS = 2, 3


def rows_of(request: object, patterns: torch.Tensor) -> torch.Tensor:
    if isinstance(request, Entries):
        return patterns[request.window, :, request.queries, request.keys].T
    return slice_pattern(patterns, request)


@cache
def text(length: int) -> tuple[list[Window], list[Relation]]:
    """Windows of at most so many tokens, and the parts whose queries are compared there."""
    tokenizer = load_tokenizer("mini", mini_folder())
    windows: list[Window] = hs.windows("gum", tokenizer, max_length=length, max_tokens=4_000)
    relations = [
        r for r in relations_of(["syntactic", "coreference", "lexical"]) if r.baseline is not None
    ]
    return windows, fit_baselines(windows, relations).summed(relations)


@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("length", [64, 700])
def test_the_preference_is_the_share_of_candidates_if_targets_have_enough_attention(
    length: int, logarithms: bool
) -> None:
    windows, parts = text(length)
    batch = assign_blocks(windows)
    size = max(map(len, windows))
    rng = np.random.default_rng(0)
    # a third of the cells has next to nothing
    shape = (len(windows), HEADS, size, size)
    patterns = [
        torch.from_numpy(rng.choice([0.004, 0.03, 0.3], shape) * rng.random(shape)).float()
        for _ in range(LAYERS)
    ]
    for pattern in patterns:
        pattern[torch.from_numpy(rng.random(shape) < 0.001)] = torch.nan
    tiles = [Tile(slice(0, len(windows)), slice(0, size))]
    config = ReaderConfig(parts, 0, LAYERS, HEADS, logarithms=logarithms)
    pairs = [WindowPairs(window) for window in windows]
    make = preference_reader(batch, pairs, tiles, config)
    assert make is not None
    reader = make()
    shared = shared_requests([reader])
    for layer, pattern in enumerate(patterns):
        given = pattern.log() if logarithms else pattern
        read_layer(layer, shared, [rows_of(entry.request, given) for entry in shared])
    tally = Tally.zeros(tuple(part.id for part in parts), LAYERS, HEADS)
    reader.add_to(tally)
    expected = Tally.zeros(tally.relations, LAYERS, HEADS)
    rejected = unknown = 0
    compared = [(i, part) for i, part in enumerate(parts) if isinstance(part, ComparedPart)]
    for number, (index, part) in product(range(len(windows)), compared):
        targets = pairs[number].targets(part)
        if not len(targets):
            continue
        others = part.candidates_in(pairs[number])
        for query in targets.queries:
            own, other = (p.key[p.owner == query] for p in (targets, others))
            if not len(other):
                continue
            block = batch.blocks_of_queries(number)[query]
            expected.queries[block, index] += 1
            for layer, pattern in enumerate(patterns):
                row = pattern[number, :, query].numpy()
                of_targets = (row[:, own] ** 2).sum(1)
                share = of_targets / (of_targets + (row[:, other] ** 2).sum(1))
                # every word is a candidate of these
                least = 0 if "nearest-" in part.name else 0.05
                is_enough = row[:, own].sum(1) >= least
                # a query with an attention that is no number shows no preference
                is_known = np.isfinite(share)
                unknown += int((~is_known).sum())
                expected.hits[block, index, layer] += np.where(is_enough & is_known, share, 0)
                rejected += int(((share > 0.1) & ~is_enough).sum())
    assert expected.queries.sum() > 100
    assert rejected > 20
    assert unknown > 20
    assert np.array_equal(tally.queries, expected.queries)
    assert np.allclose(tally.hits, expected.hits, atol=1e-5)


def test_a_late_tile_that_equals_the_last_tile_of_a_layout_is_read_by_both_readers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    models = {name: load_model("mini", device="cpu", engine=name) for name in ("fused", "eager")}
    fused = models["fused"]
    windows = hs.windows("gum", fused.tokenizer, max_length=250, max_tokens=8_000)
    relations = [r for r in relations_of(["coreference"]) if r.baseline is not None]
    parts = fit_baselines(windows, relations).summed(relations)
    window = window_compared_at_its_end(windows, parts)
    rows = len(window) - LATE
    monkeypatch.setattr(
        "headscope.models.engines.fused.BLOCK_CELLS", fused.heads * len(window) * rows
    )
    assert fused.engine.layout(1, len(window))[1:] == late_tiles([window])
    tallies = {
        name: sum_cells(model, [window], [], parts, seed=0, batch_tokens=len(window))
        for name, model in models.items()
    }
    # the eager engine gives whole patterns, so that no late tile equals one of its tiles
    compared = [isinstance(part, ComparedPart) for part in parts]
    assert tallies["eager"].queries[:, compared].any()
    assert np.array_equal(tallies["fused"].queries, tallies["eager"].queries)
    hits = (tallies[name].hits[:, compared] for name in ("fused", "eager"))
    assert np.allclose(*hits, atol=1e-4)


def window_compared_at_its_end(windows: list[Window], parts: list[Relation]) -> Window:
    """A window that ends with its first compared queries, none of them before the late ones."""
    compared = [part for part in parts if isinstance(part, ComparedPart)]
    for window in windows:
        pairs = WindowPairs(window)
        queries = np.concatenate([part.candidates_in(pairs).query for part in compared])
        end = queries.min(initial=len(window)) + 1
        if SHORTEST <= end < len(window):
            return window.cut(int(end))
    raise AssertionError("every window has compared queries early")


def test_the_most_attention_is_counted_at_the_queries_that_are_compared() -> None:
    tokenizer = load_tokenizer("mini", mini_folder())
    windows: list[Window] = hs.windows("gum", tokenizer, max_length=128, max_tokens=4_000)
    relations = [r for r in relations_of(["syntactic", "lexical"]) if r.baseline is not None]
    parts = fit_baselines(windows, relations).summed(relations)
    without_candidates = 0
    for window in windows:
        pairs = WindowPairs(window)
        read = {
            parts[index].id: cells.targets.queries for index, cells in find_all(pairs, parts, 0)
        }
        for part in parts:
            if isinstance(part, ComparedPart) and len(targets := pairs.targets(part)):
                compared = part.candidates_in(pairs).queries
                assert read.get(part.id, compared[:0]).tolist() == compared.tolist()
                without_candidates += len(targets.queries) - len(compared)
    assert without_candidates > 0
