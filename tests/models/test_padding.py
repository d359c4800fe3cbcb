"""A window has the same patterns alone and beside others, longer or shorter, in all engines."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from headscope.models.load import open_model
from tests.models.every_layout import check_batches

ORIGINAL = {"original_max_position_embeddings": 32}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 2.0, **ORIGINAL},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "longrope": {"short_factor": [1.0] * 4, "long_factor": [2.0, 4.0, 8.0, 16.0], **ORIGINAL},
}


@pytest.mark.parametrize("engine", ["fused", "eager", "lens"])
@pytest.mark.parametrize("rope", ROPES)
def test_a_pattern_does_not_depend_on_the_batch(rope, engine, gpt2_folder):
    words = AutoTokenizer.from_pretrained(gpt2_folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        vocab_size=len(words),
        initializer_range=0.4,
        rope_parameters={"rope_type": rope, "rope_theta": 10_000.0, **ROPES[rope]},
    )
    network = LlamaForCausalLM(config)
    network(torch.arange(100)[None] % 90)  # dynamic frequencies stay as a longer text left them
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    check_batches(open_model((network, words), engine=engine))
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.named_buffers())
