"""A window has the same patterns alone and beside others, longer or shorter, in both engines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from headscope.corpus.window import Window
from headscope.measure.batches import batches
from headscope.models.batching import ALL_TOGETHER, in_batches, padded_tokens
from headscope.models.engines.engine import stream_patterns
from headscope.models.in_memory import open_model
from headscope.models.load import load_model

ORIGINAL = {"original_max_position_embeddings": 32}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 2.0, **ORIGINAL},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "longrope": {"short_factor": [1.0] * 4, "long_factor": [2.0, 4.0, 8.0, 16.0], **ORIGINAL},
}
LENGTHS = (31, 64, 9, 33, 32, 50)
ENGINES = ("fused", "lens")


def windows_of(model: Any) -> list[Window]:
    rng = np.random.default_rng(0)
    windows = [Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in LENGTHS]
    return [model.tokenizer.frame.close(window) for window in windows]


def read(model: Any, groups: Iterable[Sequence[Window]]) -> dict[tuple[str, int], torch.Tensor]:
    """Each window's pattern in each layer."""
    patterns: dict[tuple[str, int], torch.Tensor] = {}

    def take(layer: int, pattern: torch.Tensor) -> None:
        for row, window in zip(pattern, group, strict=True):
            size = len(window)
            patterns[window.name, layer] = row[:, :size, :size].float().clone()

    for group in groups:
        stream_patterns(model.engine, padded_tokens(group), take)
    return patterns


def check(model: Any) -> None:
    windows = windows_of(model)
    alone = read(model, ([window] for window in windows))
    blocks = np.zeros(len(windows), np.int64)
    for groups in (
        list(in_batches(windows, ALL_TOGETHER)),
        [batch.windows for batch in batches(windows, blocks, {}, tokens=10_000)],
        [[window] for window in reversed(windows)],
    ):
        together = read(model, groups)
        assert together.keys() == alone.keys()
        for place, pattern in alone.items():
            assert torch.allclose(pattern, together[place], atol=1e-4), place


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pattern_does_not_depend_on_the_batch(model_folder, engine):
    check(load_model(str(model_folder), engine=engine))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("rope", ROPES)
def test_nor_do_rotary_frequencies_that_depend_on_the_text(rope, engine, gpt2_folder):
    words = AutoTokenizer.from_pretrained(gpt2_folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64, vocab_size=len(words), initializer_range=0.4,
        rope_parameters={"rope_type": rope, "rope_theta": 10_000.0, **ROPES[rope]},
    )  # fmt: skip
    network = LlamaForCausalLM(config)
    network(torch.arange(100)[None] % 90)  # dynamic frequencies stay as a longer text left them
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    check(open_model((network, words), engine=engine))
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.named_buffers())
