"""Tiny models of every layout: written, read by transformers itself, and read in batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.models.auto import modeling_auto as auto

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, batches
from headscope.models.engines.engine import stream_patterns
from headscope.models.layout.table import LAYOUTS
from headscope.models.stream import ALL_TOGETHER, in_batches, padded_tokens
from tests.models.tiny import ENCODERS, tiny_config

LISTED = [row.model_type for row in LAYOUTS]
LENGTHS = (31, 64, 9, 33, 32, 50)


def save_tiny(model_type: str, tokenizer, folder: Path, **more: object) -> None:
    """A tiny model with random weights that let heads attend unevenly, and `more` of its fields."""
    config = tiny_config(model_type)
    for name, value in more.items():
        setattr(config, name, value)
    network = kind_of(model_type).from_config(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            uneven = weights.dim() > 1 or name.endswith("sinks")
            if uneven and weights.is_floating_point():
                weights.normal_(0, 0.25, generator=generator)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def kind_of(model_type: str):
    """The class of transformers that loads such a model."""
    return AutoModelForMaskedLM if is_encoder(model_type) else AutoModelForCausalLM


def is_encoder(model_type: str) -> bool:
    """True if the tokens of a model of this type see those after them."""
    fills_in = model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return model_type in ENCODERS or (fills_in and model_type not in LISTED)


def own_network(folder: Path, model_type: str = ""):
    """The model as transformers itself loads it, with attention that gives its patterns."""
    return kind_of(model_type).from_pretrained(folder, attn_implementation="eager").eval()


def attention_of(network, tokens, model_type: str = "") -> list[torch.Tensor]:
    """Each layer's pattern, of a model that is loaded already."""
    how = {} if is_encoder(model_type) else {"use_cache": False}
    with torch.no_grad():
        found = network.base_model(tokens, output_attentions=True, **how)
    size = tokens.shape[-1]
    return [each for each in found.attentions if each is not None and each.shape[-1] == size]


def patterns(model, tokens) -> list[torch.Tensor]:
    """Each layer's that has one, in order."""
    seen: dict[int, torch.Tensor] = {}
    stream_patterns(model.engine, tokens, lambda layer, p: seen.update({layer: p.clone()}))
    assert sorted(seen) == list(model.attention_layers)
    return [seen[layer] for layer in sorted(seen)]


def windows_of(model: Any) -> list[Window]:
    rng = np.random.default_rng(0)
    windows = [
        Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in LENGTHS if n <= model.context
    ]
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


def check_batches(model: Any) -> None:
    """Check that a window's patterns do not depend on the windows that are read next to it."""
    windows = windows_of(model)
    alone = read(model, ([window] for window in windows))
    blocks = np.zeros(len(windows), np.int64)
    for groups in (
        list(in_batches(windows, ALL_TOGETHER)),
        [batch.windows for batch in batches(Batch(windows, blocks), tokens=10_000)],
        [[window] for window in reversed(windows)],
    ):
        together = read(model, groups)
        assert together.keys() == alone.keys()
        for place, pattern in alone.items():
            assert torch.allclose(pattern, together[place], atol=1e-4), place
