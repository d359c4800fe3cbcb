"""Cells of single heads are the same as those of a layer's whole pattern, in every kind of scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from headscope.corpus.window import Window
from headscope.measure import gather
from headscope.measure.gather import Cells, read_cells
from headscope.models.load import load_model
from tests.models.every_layout import save_tiny

KINDS = ("gpt2", "bloom", "mistral", "gemma2", "gemma3_text", "gpt_oss", "qwen3")
"""Learned positions, a bias by distance, a sliding window, capped scores, both, a learned sink, and
norms of queries and keys."""
LENGTHS = (60, 90)


@pytest.mark.parametrize("layout", KINDS)
def test_cells_by_head_are_those_of_the_whole_pattern(layout, tokenizer, tmp_path, monkeypatch):
    save_tiny(layout, tokenizer, tmp_path, vocab_size=len(tokenizer))
    model = load_model(str(tmp_path), engine="fused", device="cpu")
    luck = np.random.default_rng(0)
    tokens = [luck.integers(5, 250, length) for length in LENGTHS]
    windows = [Window(f"w{len(t)}", t, ("a",) * len(t)) for t in tokens]
    luck = np.random.default_rng(1)
    single = {i: luck.integers(0, length, (2, 80)) for i, length in enumerate(LENGTHS)}

    def cells_of(members: Sequence[int], length: int) -> Iterator[Cells[tuple[int, int, int]]]:
        for row, number in enumerate(members):
            size = LENGTHS[number]
            whole = np.full(size, size - 1), np.arange(size)
            query, key = np.concatenate([single[number], whole], axis=1)
            flat = (row * model.heads * length + query) * length + key
            for layer in range(model.layers):
                for head in range(model.heads):
                    yield Cells(layer, head, flat, (number, layer, head))

    def read(long: int) -> dict[tuple[int, int, int], np.ndarray]:
        monkeypatch.setattr(gather, "LONG", long)
        return dict(read_cells(model, windows, cells_of, batch_tokens=1_000))

    by_head, by_layer = read(10), read(1_000)
    assert by_head.keys() == by_layer.keys()
    assert len(by_head) == len(LENGTHS) * model.layers * model.heads
    for place, values in by_head.items():
        assert np.allclose(values, by_layer[place], atol=1e-6), place
