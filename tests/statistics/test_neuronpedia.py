"""Pages on Neuronpedia: of the models that have some, by the model's own numbers of layer and head."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.statistics.neuronpedia import HOSTED, head_pages
from tests.helpers.places import SHARED

NAMES = SHARED.parent / "clients" / "neuronpedia_headvis" / "np_model_to_hf.json"


@pytest.fixture(scope="module")
def tiny_run():
    """Two layers of three heads that attend evenly."""
    size = 41
    even = np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]
    patterns = [np.broadcast_to(even, (2, 3, size, size))] * 6
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(20)] * 2] for i in range(6)]
    return hs.score_patterns(patterns, None, tokens, name="even heads")


def of(run, name, **settings):
    """The same run of a model by another name."""
    info = run.info | {"model": run.info["model"] | {"name": name}}
    return replace(run, info=info | {"settings": run.info.get("settings", {}) | settings})


@pytest.mark.parametrize(
    ("name", "site"),
    [
        ("openai-community/gpt2", "gpt2-small"),
        ("gpt2", "gpt2-small"),
        ("google/gemma-3-1b-pt", "gemma-3-1b"),
        ("EleutherAI/pythia-70m-deduped", "pythia-70m-deduped"),
    ],
)
def test_why_ends_with_the_head_s_page(tiny_run, name, site):
    line = f"On Neuronpedia: https://www.neuronpedia.org/{site}/head/1/2"
    assert of(tiny_run, name).why("L1H2").splitlines()[-1] == line
    assert "Neuronpedia" not in tiny_run.why("L1H2")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mini", {}),
        ("distilgpt2", {}),
        ("mine/gpt2", {}),
        ("pythia-70m-deduped", {"revision": "step1000"}),
    ],
)
def test_another_model_has_none(tiny_run, name, settings):
    run = of(tiny_run, name, **settings)
    assert head_pages(run.info) is None
    assert "Neuronpedia" not in run.why("L1H2")


def test_printed_rows_end_with_the_page_of_each_head(tiny_run, tmp_path, command):
    of(tiny_run, "gpt2").save(tmp_path / "run")
    tiny_run.save(tmp_path / "other")
    code, printed, _ = command("heads", tmp_path / "run", "--format", "csv")
    table = pd.read_csv(io.StringIO(printed))
    assert code == 0
    assert table.columns[-1] == "page"
    row = table[(table["layer"] == 1) & (table["head"] == 2)].iloc[0]
    assert row["page"] == "https://www.neuronpedia.org/gpt2-small/head/1/2"
    assert "page" not in command("heads", tmp_path / "other", "--format", "csv")[1].split("\n")[0]


@pytest.mark.skipif(not NAMES.is_file(), reason=f"needs Neuronpedia's programs in {NAMES.parent}")
def test_the_table_is_neuronpedia_s_own():
    assert {name: model for model, name in HOSTED.items()} == json.loads(NAMES.read_text())
