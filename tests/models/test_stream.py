"""Attention that is handed on layer by layer: against transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.corpus.window import Window
from headscope.models.load import load_model
from headscope.models.stream import ALL_TOGETHER, stream_attention, tiled_patterns, whole_patterns

LENGTHS = (9, 23, 14)


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    rng = np.random.default_rng(0)
    return [Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in LENGTHS]


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


@pytest.fixture(scope="module")
def expected(model_folder, windows):
    """Patterns, residual streams and loss of each window by transformers."""
    network = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    wants = {"output_attentions": True, "output_hidden_states": True}
    with torch.no_grad():
        ids = [torch.from_numpy(window.tokens)[None] for window in windows]
        return [network(each, labels=each, **wants) for each in ids]


@pytest.mark.parametrize("batch_tokens", [1, 30, ALL_TOGETHER])
@pytest.mark.parametrize("whole", [True, False])
def test_patterns_are_the_models_own_however_windows_run(
    model, windows, expected, batch_tokens, whole
):
    seen: list[tuple[int, str]] = []

    def look(attention):
        tiles = [rows.clone() for rows in attention.probabilities()]
        (pattern,) = tiles
        for row, window in zip(pattern, attention.windows, strict=True):
            seen.append((attention.layer, window.name))
            number = [w.name for w in windows].index(window.name)
            own = expected[number].attentions[attention.layer][0]
            size = len(window)
            assert torch.allclose(row[:, :size, :size], own, atol=1e-5)

    regions = whole_patterns if whole else tiled_patterns(model)
    stream_attention(model, windows, regions, look, batch_tokens=batch_tokens)
    assert sorted(seen) == sorted((layer, str(n)) for layer in (0, 1) for n in LENGTHS)


def test_an_error_while_a_layer_is_read_leaves_no_reader_behind(model, windows):
    def fail(attention):
        raise KeyError(attention.layer)

    with pytest.raises(KeyError):
        stream_attention(model, windows, whole_patterns, fail)
    seen = []
    stream_attention(model, windows, whole_patterns, seen.append)
    model.engine.network.base_model(torch.arange(9)[None])
    assert len(seen) == model.layers * len(windows)
