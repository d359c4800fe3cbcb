"""Engines: what they give must not depend on how they give it."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.measure.batch_reader import measure
from headscope.measure.tally import Tally
from headscope.models.engines import fused
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.text import TextWindows
from tests.helpers.models import own_code

RELATIONS = relations_of(["all"])


@pytest.fixture(scope="module")
def stimuli(model_folder, annotated):
    model = load_model(str(model_folder))
    text = TextWindows(annotated, model.tokenizer, max_tokens=2500, max_length=240, seed=0)
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    return list(text), repeat_windows(vocabulary, model.tokenizer, max_length=240, seed=0)[:4]


def tally_by(engine: str, folder, stimuli) -> Tally:
    model = load_model(str(folder), engine=engine)
    assert model.engine.name == engine
    return measure(model, *stimuli, RELATIONS, seed=0, batch_tokens=1000)


@pytest.fixture(scope="module")
def by_lens(model_folder, stimuli):
    return tally_by("lens", model_folder, stimuli)


def differences(one: Tally, other: Tally) -> dict[str, float]:
    """The largest differences of means over queries, 0 to 1."""
    queries = np.maximum(one.queries.sum(0), 1)[:, None, None]
    means = {
        name: np.abs((getattr(one, name) - getattr(other, name)).sum(0) / queries).max()
        for name in ("target", "control")
    }
    profiled = float(one.profile.queries)
    for name in ("entropy", "first_token", "spread", "diagonal", "stripe", "sentence"):
        difference = getattr(one.profile, name) - getattr(other.profile, name)
        means[name] = np.abs(difference).max() / profiled
    means["distance"] = np.abs(one.profile.distance - other.profile.distance).max() / profiled / 240
    means["corner"] = np.abs(one.profile.corner - other.profile.corner).max()
    return means


def test_both_engines_give_the_same_tally(model_folder, stimuli, by_lens):
    own = tally_by("fused", model_folder, stimuli)
    assert np.array_equal(by_lens.queries, own.queries)
    assert by_lens.profile.queries == own.profile.queries > 500
    assert np.array_equal(by_lens.profile.corners, own.profile.corners)
    assert max(differences(by_lens, own).values()) < 1e-5
    # two keys that differ in the last bit may change places
    assert np.abs(by_lens.hits.sum(0) - own.hits.sum(0)).max() <= 1
    assert own.hits.sum() > 1000


@pytest.mark.parametrize("cells", [1, 30_000, 2**30])
def test_the_size_of_tiles_changes_nothing(model_folder, stimuli, by_lens, monkeypatch, cells):
    monkeypatch.setattr(fused, "BLOCK_CELLS", cells)
    own = tally_by("fused", model_folder, stimuli)
    assert max(differences(by_lens, own).values()) < 1e-5
    assert np.array_equal(by_lens.profile.corners, own.profile.corners)


@pytest.mark.parametrize(("windows", "length"), [(1, 1), (3, 16), (8, 256), (2, 1024), (1, 5000)])
def test_tiles_cover_every_row_once_and_in_order(gpt2_folder, windows, length):
    tiles = load_model(str(gpt2_folder)).engine.layout(windows, length)
    seen = [
        (window, query)
        for tile in tiles
        for window in range(tile.windows.start, tile.windows.stop)
        for query in range(tile.queries.start, tile.queries.stop)
    ]
    assert seen == [(window, query) for window in range(windows) for query in range(length)]
    heads = 4
    largest = max(tile.shape[0] * tile.shape[1] * tile.keys * heads for tile in tiles)
    assert largest <= fused.BLOCK_CELLS


@pytest.mark.parametrize("engine", ["lens", "fused"])
def test_a_model_of_even_attention_hits_the_previous_token_by_its_share_of_the_keys(
    engine, gpt2_folder, tmp_path
):
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    for block in network.transformer.h:
        torch.nn.init.zeros_(block.attn.c_attn.weight)
    network.save_pretrained(tmp_path / "even")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(gpt2_folder / name, tmp_path / "even" / name)
    model = load_model(str(tmp_path / "even"), engine=engine)
    texts = [Window(str(n), np.arange(n), ("a",) * n) for n in (20, 31)]
    for types in (["positional"], ["positional", "delimiter", "induction"]):
        relations = relations_of(types)
        tally = measure(model, texts, [], relations, seed=0, batch_tokens=100)
        at = [relation.id for relation in relations].index("positional/offset-1")
        # the query at position q sees q keys beside the first token
        expected = sum(1 / q for n in (20, 31) for q in range(2, n))
        assert np.allclose(tally.hits[:, at].sum(0), expected, atol=1e-5)


def test_auto_falls_back_to_lens_and_says_why(gpt2_folder, tmp_path, keys_file):
    name = own_code(gpt2_folder, tmp_path / "gpt")
    model = load_model(name)
    assert model.engine.name == "lens"
    assert "0 of its 2 layers show their attention as softmax(q·k)" in model.notes[0]
    with pytest.raises(ModelError, match=r"fused engine does not fit: 0 of its 2 layers show"):
        load_model(name, engine="fused")
    run = hs.classify(name, keys_file, max_tokens=100, types=["delimiter"])
    assert run.info["engine"] == "lens"
    assert any("0 of its 2 layers" in note for note in run.info["notes"])
