"""Engines: what they give must not depend on how they give it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, FalconConfig, FalconForCausalLM

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.errors import ModelError
from headscope.measure.reading import sum_cells
from headscope.measure.tally import Tally
from headscope.models.engines import eager, fused
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.repeat import repeat_windows
from tests.helpers.models import own_code

RELATIONS = relations_of(["all"])


@pytest.fixture(scope="module")
def stimuli(model_folder, annotated):
    model = load_model(str(model_folder))
    text = TextWindows(annotated, model.tokenizer, max_tokens=1200, max_length=240, seed=0)
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    return list(text), repeat_windows(vocabulary, model.tokenizer, max_length=240, seed=0)[:4]


def tally_by(engine: str, folder, stimuli) -> Tally:
    model = load_model(str(folder), engine=engine)
    assert model.engine.name == engine
    return sum_cells(model, *stimuli, RELATIONS, seed=0, batch_tokens=1000)


@pytest.fixture(scope="module")
def by_lens(model_folder, stimuli):
    return tally_by("lens", model_folder, stimuli)


@pytest.mark.parametrize(
    ("engine", "cells"), [("fused", 1), ("fused", 30_000), ("fused", 2**30), ("eager", 2**20)]
)
def test_engines_give_the_same_tally_by_tiles_of_any_size(
    model_folder, stimuli, by_lens, monkeypatch, engine, cells
):
    monkeypatch.setattr(fused, "BLOCK_CELLS", cells)
    own = tally_by(engine, model_folder, stimuli)
    theirs = by_lens.arrays()
    for name, sums in own.arrays().items():
        if name != "hits":
            assert np.allclose(sums, theirs[name], rtol=1e-4, atol=1e-2), name
    assert np.array_equal(by_lens.queries, own.queries)
    assert by_lens.profile.queries == own.profile.queries > 500
    # two keys that differ in the last bit may change places
    assert np.abs(by_lens.hits.sum(0) - own.hits.sum(0)).max() <= 1
    assert own.hits.sum() > 1000


def test_auto_falls_back_to_eager_and_says_why(gpt2_folder, tmp_path, keys_file):
    name = own_code(gpt2_folder, tmp_path / "gpt")
    model = load_model(name)
    assert model.engine.name == "eager"
    assert "0 of its 2 layers" in model.notes[0]
    with pytest.raises(ModelError, match="fused"):
        load_model(name, engine="fused")
    run = hs.classify(name, keys_file, max_tokens=100, types=["delimiter"])
    assert run.info["engine"] == "eager"
    assert any("0 of its 2 layers" in note for note in run.info["notes"])


@pytest.mark.parametrize(
    "error", [MemoryError("no memory"), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")]
)
def test_another_engine_is_not_taken_because_memory_ran_out(error, gpt2_folder, monkeypatch):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(fused.FusedEngine, "run", fail)
    with pytest.raises(ModelError, match="memory"):
        load_model(str(gpt2_folder))


def falcon(**options: bool | int) -> FalconForCausalLM:
    config = FalconConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=5_000,
        alibi=False,
        bos_token_id=1,
        eos_token_id=2,
        **options,
    )
    torch.manual_seed(0)
    network = FalconForCausalLM(config).eval()
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return network


TEXT = "The keys to the cabinet are on the table."


@pytest.mark.parametrize(
    "options",
    [
        {"multi_query": True},
        {"multi_query": False},
        {"new_decoder_architecture": True, "num_kv_heads": 2},
    ],
)
def test_falcon_with_rotary_positions_is_read_as_its_eager_attention(options):
    network = falcon(**options)
    read = hs.patterns((network, AutoTokenizer.from_pretrained(mini_folder())), TEXT)
    tokens = torch.from_numpy(read.window.tokens)[None]
    network.set_attn_implementation("eager")
    # a mask of numbers: transformers adds what it is given to the scores
    hidden = torch.full([tokens.shape[1]] * 2, torch.finfo(torch.float32).min).triu(1)
    output = network.base_model(tokens, attention_mask=hidden[None, None], output_attentions=True)
    expected = torch.cat(output.attentions).detach().numpy()
    assert np.abs(read.array - expected).max() < 2e-3  # of half precision


def test_if_no_engine_fits_both_reasons_are_stated(gpt2_folder, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("no pattern")

    monkeypatch.setattr(fused.FusedEngine, "run", fail)
    monkeypatch.setattr(eager.EagerEngine, "run", fail)
    with pytest.raises(ModelError) as refused:
        load_model(str(gpt2_folder))
    assert "fused: no pattern" in str(refused.value)
    assert "eager: no pattern" in str(refused.value)
