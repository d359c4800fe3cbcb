"""Heads whose outputs are mixed before W_O: patterns are read, slices of W_O are refused."""

from __future__ import annotations

import pytest
import torch

import headscope as hs
from headscope.causal.rerun import Rerunner
from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.studies.ablate_edges import edge_effects
from tests.models.every_layout import attention_of, own_network, patterns, save_tiny

MIXED = ("diffllama", "bitnet")
"""Differential attention, and a norm over the outputs of all heads."""
APART = ("llama", "gpt2", "gemma2", "qwen3_next", "deepseek_v3", "gpt_oss", "bert", "distilbert")
"""Grouped heads, one matrix for Q, K and V, norms behind W_O, a gate of each head, latent
attention, sinks, and encoders."""
TOKENS = torch.arange(3, 27)[None]


@pytest.fixture(scope="module")
def folders(tokenizer, tmp_path_factory):
    home = tmp_path_factory.mktemp("slices")
    for model_type in (*MIXED, *APART):
        save_tiny(model_type, tokenizer, home / model_type, vocab_size=len(tokenizer))
    return home


@pytest.mark.parametrize("model_type", [*MIXED, *APART])
def test_layers_that_mix_heads_are_known_when_the_model_is_loaded(model_type, folders):
    model = load_model(str(folders / model_type))
    assert model.engine.name == "fused"
    is_mixed = model_type in MIXED
    assert model.mixed_layers == (model.attention_layers if is_mixed else ())
    assert any("W_O" in note for note in model.notes) == is_mixed
    eager = attention_of(own_network(folders / model_type, model_type), TOKENS, model_type)
    if len(eager) == len(model.attention_layers):
        for pattern, expected in zip(patterns(model, TOKENS), eager, strict=True):
            torch.testing.assert_close(pattern, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("model_type", MIXED)
def test_each_layer_hands_on_its_rows_once(model_type, folders):
    """transformers calls the attention of a DiffLlama twice."""
    model = load_model(str(folders / model_type))
    read = []
    tiles = model.engine.layout(*TOKENS.shape)
    model.engine.run(TOKENS, tiles, lambda layer, rows: read.append(layer), on=True)
    assert read == [0, 1]


@pytest.fixture(scope="module")
def run_of(folders, story, tmp_path_factory):
    runs = {}
    for model_type in MIXED:
        out = tmp_path_factory.mktemp(model_type) / "run"
        types = ["positional", "delimiter"]
        runs[model_type] = hs.classify(folders / model_type, story, types=types, out=out)
    return runs


CAUSAL = {
    "patch": lambda run, text: hs.patch(run, clean="x1z", corrupt="x2z", heads="all"),
    "prune": lambda run, text: hs.prune(run, text, max_tokens=200),
    "collapse": lambda run, text: hs.collapse(run, text, max_tokens=200),
    "function vectors": lambda run, text: hs.function_vectors(run, tasks="past"),
}


@pytest.mark.parametrize("study", CAUSAL)
@pytest.mark.parametrize("model_type", MIXED)
def test_causal_studies_refuse_models_that_mix_heads(study, model_type, run_of, story):
    with pytest.raises(ModelError, match="W_O"):
        CAUSAL[study](run_of[model_type], story)


@pytest.mark.parametrize("model_type", MIXED)
def test_ablation_refuses_models_that_mix_heads(model_type, folders, story):
    """Heads of random models have no tags, so that `hs.ablate` stops before it loads a model."""
    model = load_model(str(folders / model_type))
    with pytest.raises(ModelError, match="W_O"):
        Rerunner(model)
    with pytest.raises(ModelError, match="W_O"):
        edge_effects(model, [story], [], queries=4, seed=0, progress=lambda done, total: None)


@pytest.mark.parametrize("model_type", MIXED)
def test_direct_effects_refuse_models_that_mix_heads(model_type, folders, story):
    with pytest.raises(ModelError, match="W_O"):
        hs.classify(folders / model_type, story, direct_effects=True)
