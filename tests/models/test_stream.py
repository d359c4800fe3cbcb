"""Attention handed on layer by layer, and the loss on text: against transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.causal.loss import loss
from headscope.corpus.window import Window
from headscope.measure.study_windows import text_windows
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
    """Patterns and loss of each window by transformers."""
    network = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    with torch.no_grad():
        ids = [torch.from_numpy(window.tokens)[None] for window in windows]
        return [network(each, labels=each, output_attentions=True) for each in ids]


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


@pytest.mark.parametrize("batch_tokens", [1, 40, None])
def test_losses_are_those_of_transformers_in_the_order_of_the_windows(
    model, windows, expected, batch_tokens
):
    found = loss(model, windows, batch_tokens=batch_tokens)
    assert found.tokens.tolist() == [length - 1 for length in LENGTHS]
    own = [float(each.loss) for each in expected]
    assert found.nats / found.tokens == pytest.approx(own, rel=1e-5)
    assert found.mean == pytest.approx(found.nats.sum() / found.tokens.sum(), rel=1e-5)


def test_chunks_of_logits_change_nothing(model, story, monkeypatch):
    windows = text_windows(model, story)
    whole = loss(model, windows)
    monkeypatch.setattr("headscope.causal.loss.LOGIT_CELLS", 7 * model.vocabulary_size)
    parts = loss(model, windows)
    assert parts.nats.tolist() == pytest.approx(whole.nats.tolist(), rel=1e-6)
