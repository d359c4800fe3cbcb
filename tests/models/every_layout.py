"""What must hold of every layout: its own patterns, or one sentence that says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.errors import ModelError
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from tests.models.tiny import CONTEXT, LARGEST, tiny_config

LONGEST_SENTENCE = 500


def save_tiny(model_type: str, tokenizer, folder: Path) -> None:
    """A tiny model with random weights that let heads attend unevenly.

    What transformers itself cannot build from tiny numbers is skipped with its reason.
    """
    try:
        config = tiny_config(model_type)
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config)
        size = sum(weights.numel() for weights in empty.parameters())
        if size > LARGEST:
            raise ValueError(f"{size:,} parameters")
        network = AutoModelForCausalLM.from_config(config)
    except Exception as error:
        pytest.skip(f"transformers cannot build it tiny: {str(error).splitlines()[0]}")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() > 1 and weights.is_floating_point():
                weights.normal_(0, 0.25, generator=generator)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def own_attention(folder: Path, tokens) -> list[torch.Tensor]:
    """What transformers itself gives."""
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        found = network.base_model(tokens, use_cache=False, output_attentions=True)
    return list(found.attentions)


def check_layout(model_type: str, tokenizer, folder: Path) -> None:
    save_tiny(model_type, tokenizer, folder)
    try:
        model = load_model(str(folder))
    except ModelError as error:
        message = str(error)
        assert str(folder) in message
        assert "\n" not in message
        assert len(message) < LONGEST_SENTENCE + len(str(folder))
        return
    tokens = torch.randint(1, 300, (2, CONTEXT), generator=torch.Generator().manual_seed(1))
    seen: dict[int, torch.Tensor] = {}
    stream_patterns(model.engine, tokens, lambda layer, p: seen.update({layer: p.clone()}))
    own = own_attention(folder, tokens)
    assert model.context == CONTEXT
    assert list(seen) == list(range(len(own)))
    for layer, pattern in enumerate(own):
        assert torch.allclose(seen[layer], pattern, atol=1e-4), layer
    # a test of even attention would prove little
    assert max(float(pattern[..., 20:, :].max(-1).values.mean()) for pattern in own) > 0.08
