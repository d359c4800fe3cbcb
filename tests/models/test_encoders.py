"""Encoders, whose tokens see those after them too: what is read of them, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from transformers import (
    BertModel,
    ElectraForPreTraining,
)

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.measure.reading import sum_cells
from headscope.models.engines import fused
from headscope.models.load import load_model
from headscope.relations import relations_of
from tests.helpers.encoders import HEADS, SPECIAL, WORDS, corpus, save_hand_built, save_tokenizer
from tests.helpers.shell import headscope
from tests.models.every_layout import patterns
from tests.models.tiny import tiny_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_hand_built(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "pairs.conllu"
    path.write_text(corpus(24, seed=0), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(folder, text, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    return hs.classify(str(folder), text, max_tokens=6000, max_length=120, out=out), out


def test_what_each_head_was_built_to_do_is_found(run):
    found = run[0].evidence[run[0].evidence["tagged"].astype(bool)]
    tags = {(f"{row.type}/{row.relation}", row.head) for row in found.itertuples()}
    beside = {("positional/offset+1-random", 0), ("positional/offset-1-random", 1)}
    assert tags == {*HEADS.items(), *beside, ("positional/local", 0), ("positional/local", 1)}
    assert json.loads((run[1] / "run.json").read_text())["model"]["both_ways"] is True


def test_a_dependency_is_scored_wherever_its_other_end_stands(run, text, folder):
    """A noun's head looks at its own verb wherever that stands in the window."""
    windows = hs.windows(text, load_model(str(folder)).tokenizer, max_length=120, max_tokens=6000)
    queries, later = 0, 0
    for window in windows:
        assert (window.strings[0], window.strings[-1]) == ("[CLS]", "[SEP]")
        objects = window.words.dependents["obj"]
        queries += len(objects)
        later += int((window.words.head[objects] > objects).sum())
    assert 0.4 < later / queries < 0.6
    evidence = run[0].evidence.set_index(["head", "relation"])
    for head, relation in ((3, "obj:dep>head"), (4, "obj:head>dep")):
        row = evidence.loc[(head, relation)]
        assert row["n"] == queries
        assert row["mass"] == pytest.approx(1, abs=0.01)
        # of all other verbs, or nouns, on either side none is looked at
        assert row["control"] < 0.02


def test_a_head_of_even_attention_has_the_closed_forms(run):
    row = run[0].heads.loc["L0H7"]
    assert row["shape"] == "horizontal"
    evidence = run[0].evidence.set_index(["head", "type", "relation"])
    ahead = evidence.loc[(7, "positional", "offset+1")]
    assert ahead["mass"] == pytest.approx(ahead["control"], abs=1e-6)
    assert ahead["mass"] == pytest.approx(row["first_token_mass"], abs=1e-3)
    assert row["entropy"] == pytest.approx(-np.log(row["first_token_mass"]), abs=0.01)
    assert run[0].heads.loc["L0H0", "shape"] == "diagonal"


def test_show_has_the_later_half_of_a_pattern(run):
    view = run[0].show("L0H0", "n1 so v1")
    assert view.tokens == ("[CLS]", "n1", "so", "v1", "[SEP]")
    assert view.pattern[1, 2] > 0.99
    assert view._repr_html_().count('"maskUpperTri":false') == 1


@pytest.mark.parametrize("option", ["--direct-effects", "--engine lens", "--chat"])
def test_what_does_not_go_with_an_encoder_is_refused(option, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = headscope("classify", str(folder), *option.split())
    assert told.returncode == 2
    assert "encoder" in told.stderr or "predict a next token" in told.stderr
    assert "Traceback" not in told.stderr
    assert not [*tmp_path.iterdir()]


def test_profiles_of_a_long_window_do_not_depend_on_tiles(text, folder, monkeypatch):
    model = load_model(str(folder))
    windows = hs.windows(text, model.tokenizer, max_length=120, max_tokens=500)
    relations = relations_of(["positional"], BIDIRECTIONAL)
    tallies = []
    for cells in (2**20, 1):
        monkeypatch.setattr(fused, "BLOCK_CELLS", cells)
        tallies.append(sum_cells(model, windows, [], relations, seed=0, batch_tokens=256))
    for name, sums in tallies[0].arrays().items():
        assert np.allclose(sums, tallies[1].arrays()[name], atol=1e-3), name


def test_an_encoder_without_its_head_for_words_is_read(tmp_path):
    for name, model in (
        ("bert", BertModel(tiny_config("bert"), add_pooling_layer=False)),
        ("electra", ElectraForPreTraining(tiny_config("electra"))),
    ):
        model.save_pretrained(tmp_path / name)
        save_tokenizer(WORDS, tmp_path / name)
        loaded = load_model(str(tmp_path / name))
        assert loaded.attention_kind == BIDIRECTIONAL
        assert (loaded.tokenizer.bos_string, loaded.tokenizer.frame.end_string) == SPECIAL[:2]
        assert len(patterns(loaded, torch.arange(20)[None])) == 2
