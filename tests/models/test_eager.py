"""The engine that reads what a model's own code returns: any model, one layer in memory."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.errors import ModelError
from headscope.models.engines.choose import Probe, check_padding
from headscope.models.engines.engine import full_tile, stream_patterns
from headscope.models.load import load_model
from tests.models.every_layout import attention_of, check_batches, own_network, patterns, save_tiny
from tests.models.tiny import CONTEXT

TYPES = ("albert", "deberta-v2", "mpnet", "bloom", "xglm")
"""Layers that share weights, scores of three products, a bias, ALiBi, and code of its own."""


@pytest.mark.parametrize("model_type", TYPES)
def test_a_model_outside_of_the_fused_engine_shows_its_own_attention(
    model_type, tokenizer, tmp_path
):
    save_tiny(model_type, tokenizer, tmp_path)
    model = load_model(str(tmp_path))
    assert model.engine.name == "eager"
    length = min(CONTEXT, model.context)
    tokens = torch.randint(1, 300, (2, length), generator=torch.Generator().manual_seed(1))
    own = attention_of(own_network(tmp_path, model_type), tokens, model_type)
    seen = patterns(model, tokens)
    assert len(seen) == len(own) == 2
    assert max(float((a - b).abs().max()) for a, b in zip(seen, own, strict=True)) < 1e-5
    check_batches(model)


def test_patterns_of_one_layer_are_in_memory_at_a_time(gpt2_folder):
    engine = load_model(str(gpt2_folder), engine="eager").engine
    earlier: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def on_pattern(layer: int, pattern: Tensor) -> None:
        alive.append(sum(reference() is not None for reference in earlier))
        earlier.append(weakref.ref(pattern.untyped_storage()))

    stream_patterns(engine, torch.arange(40)[None], on_pattern)
    assert alive == [0, 0]


class Batched:
    """An engine whose attention depends on the number of texts that are read together."""

    name = "batched"
    logarithms = False
    attention_layers = (0,)

    def __init__(self, kind: Any, shift: float) -> None:
        self.attention_kind, self.shift = kind, shift

    def layout(self, windows: int, length: int) -> list[Any]:
        return [full_tile(windows, length)]

    def run(
        self, tokens: Tensor, tiles: Any, on_layer: Any, layers: Any = None, **how: Any
    ) -> None:
        length = tokens.shape[1]
        pattern = torch.eye(length).expand(len(tokens), 2, -1, -1) * (1 - self.shift)
        on_layer(0, [pattern if len(tokens) > 1 else torch.eye(length).expand(1, 2, -1, -1)])

    def matrices(self) -> list[Any]:
        return []


@pytest.mark.parametrize("kind", [CAUSAL, BIDIRECTIONAL])
def test_a_model_whose_attention_depends_on_the_batch_is_refused(kind):
    probed = Probe(torch.arange(20)[None], (0,), (), 1e-4)
    check_padding(Batched(kind, shift=0.0), probed)
    with pytest.raises(ModelError, match="batch"):
        check_padding(Batched(kind, shift=0.1), probed)


def test_a_model_that_returns_no_weights_is_refused(tokenizer, tmp_path):
    save_tiny("mamba", tokenizer, tmp_path)
    with pytest.raises(ModelError) as refused:
        load_model(str(tmp_path), engine="eager")
    assert "\n" not in str(refused.value)


def test_both_engines_tag_the_same_heads(gpt2_folder, prose):
    tables = []
    for engine in ("fused", "eager"):
        run = hs.classify(str(gpt2_folder), prose, engine=engine, max_tokens=2_000, dtype="float32")
        tables.append(run.evidence[["mass", "control"]].to_numpy())
    assert np.allclose(*tables, atol=1e-5, equal_nan=True)


def with_direct_effects(model: Any) -> Any:
    return hs.classify(model, direct_effects=True)


@pytest.mark.parametrize("study", [with_direct_effects, hs.prune])
def test_what_changes_attention_refuses_the_engine_in_a_sentence(study, gpt2_folder):
    model = load_model(str(gpt2_folder), engine="eager")
    with pytest.raises(ModelError, match="fused engine"):
        study(model)
