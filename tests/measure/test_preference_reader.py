"""Preferred targets at hard and easy queries, against a loop over cells."""

from __future__ import annotations

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
from headscope.measure.tally import Tally
from headscope.models.engines.engine import Entries, Tile, slice_pattern
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import relations_of
from headscope.relations.hard_queries import ComparedPart
from headscope.relations.window_pairs import WindowPairs

LAYERS, HEADS = 2, 3


def rows_of(request: object, patterns: torch.Tensor) -> torch.Tensor:
    if isinstance(request, Entries):
        return patterns[request.window, :, request.queries, request.keys].T
    return slice_pattern(patterns, request)


@pytest.mark.parametrize("logarithms", [False, True])
@pytest.mark.parametrize("length", [64, 700])
def test_a_target_is_preferred_if_it_has_the_largest_attention_of_all_candidates(
    length: int, logarithms: bool
) -> None:
    tokenizer = load_tokenizer("mini", mini_folder())
    windows: list[Window] = hs.windows("gum", tokenizer, max_length=length, max_tokens=4_000)
    relations = [r for r in relations_of(["syntactic", "coreference"]) if r.baseline is not None]
    parts = fit_baselines(windows, relations).parts(relations)
    batch = assign_blocks(windows)
    size = max(map(len, windows))
    rng = np.random.default_rng(0)
    patterns = [
        torch.from_numpy(rng.random((len(windows), HEADS, size, size), np.float32))
        for _ in range(LAYERS)
    ]
    tiles = [Tile(slice(0, len(windows)), slice(0, size))]
    config = ReaderConfig(parts, 0, LAYERS, HEADS, logarithms=logarithms)
    pairs = [WindowPairs(window) for window in windows]
    make = preference_reader(batch, pairs, tiles, config)
    assert make is not None
    reader = make()
    shared = shared_requests([reader])
    for layer, pattern in enumerate(patterns):
        given = pattern.log() if logarithms else pattern
        read_layer(layer, shared, [rows_of(request, given) for request, _ in shared])
    tally = Tally.zeros(tuple(part.id for part in parts), LAYERS, HEADS)
    reader.add_to(tally)
    expected = Tally.zeros(tally.relations, LAYERS, HEADS)
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
                is_preferred = row[:, own].max(1) > row[:, other].max(1)
                expected.hits[block, index, layer] += is_preferred
    assert expected.queries.sum() > 100
    assert np.array_equal(tally.queries, expected.queries)
    assert np.array_equal(tally.hits, expected.hits)
