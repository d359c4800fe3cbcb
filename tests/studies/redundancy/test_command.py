"""Redundancy of small models, and the command line as its users see it."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import RunError
from headscope.measure.study_windows import evenly
from headscope.models.load import load_model
from headscope.stimuli.text import TextWindows
from tests.helpers.formats import columns_of
from tests.helpers.models import save_model
from tests.helpers.shell import headscope

TEXT = "Alice was very tired. She looked at the old keys again, and the door was shut. "


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "alice.txt"
    path.write_text("".join(f"{i} {TEXT}" for i in range(60)))
    return path


def classified(model, corpus, folder):
    hs.classify(
        str(model), corpus, types=["positional"], max_tokens=2000, max_length=64, twin=False,
        examples=False, out=folder,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def folder(gpt2_folder, corpus, tmp_path_factory):
    return classified(gpt2_folder, corpus, tmp_path_factory.mktemp("gpt2") / "run")


@pytest.fixture(scope="module")
def grouped(tokenizer, corpus, tmp_path_factory):
    where = tmp_path_factory.mktemp("llama")
    model = save_model("llama", tokenizer, where / "model")
    return classified(model, corpus, where / "run")


@pytest.mark.parametrize("which", ["folder", "grouped"])
def test_distances_are_those_of_the_models_own_attention(which, corpus, request):
    run = hs.load(request.getfixturevalue(which))
    name = run.info["places"]["model"]
    plain = AutoModelForCausalLM.from_pretrained(name, attn_implementation="eager").eval()
    text = list(
        TextWindows([corpus], load_model(name).tokenizer, max_tokens=2000, max_length=64, seed=0)
    )
    total, count = np.zeros((8, 8)), 0
    for window in (text[i] for i in evenly(len(text), 3)):
        with torch.inference_mode():
            tokens = torch.from_numpy(window.tokens)[None]
            patterns = plain(tokens, output_attentions=True).attentions
        heads = torch.cat([layer[0] for layer in patterns]).double().numpy()
        for query in 1 + evenly(len(window) - 1, 5):
            count += 1
            for i in range(8):
                for j in range(i):
                    d = jensenshannon(heads[i, query], heads[j, query], base=2) ** 2
                    total[[i, j], [j, i]] += d
    found = hs.redundancy(run, windows=3, queries=5)
    assert found.values["queries"] == count == 15
    nearest = (total + 99 * np.eye(8)).argmin(1)
    assert found.table["nearest"].tolist() == [f"L{i // 4}H{i % 4}" for i in nearest]
    np.testing.assert_allclose(
        found.table["distance"], (total / count)[range(8), nearest], atol=1e-5
    )


def test_two_heads_with_the_same_weights_are_0_apart_and_in_one_cluster(
    gpt2_folder, tokenizer, corpus, tmp_path
):
    model = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    layer = model.transformer.h[1].attn.c_attn
    with torch.no_grad():
        for start in (0, 32):  # queries, then keys; a head has 8 columns of each
            one, other = (slice(start + 8 * head, start + 8 * head + 8) for head in (1, 3))
            layer.weight[:, other] = layer.weight[:, one]
            layer.bias[other] = layer.bias[one]
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    found = hs.redundancy(classified(tmp_path / "model", corpus, tmp_path / "run"))
    heads = found.table.set_index(["layer", "head"])
    assert heads.loc[(1, 1), "nearest"] == "L1H3"
    assert heads.loc[(1, 3), "nearest"] == "L1H1"
    assert heads.loc[(1, 1), "cluster"] == heads.loc[(1, 3), "cluster"]
    assert heads["cluster"].nunique() > 1
    rest = heads["distance"].sort_values().to_numpy()
    assert rest[:2] == pytest.approx(0, abs=1e-9)
    assert rest[2] > 0.01  # only these two


def test_a_grouped_model_has_its_groups_compared(grouped, folder):
    found, plain = (hs.redundancy(run, windows=8, queries=4) for run in (grouped, folder))
    assert any("same key/value group" in line for line in found.summary)
    assert not any("same key/value group" in line for line in plain.summary)


def test_the_same_run_gives_the_same_numbers(folder):
    one, again = (hs.redundancy(folder, windows=8, queries=3) for _ in range(2))
    pd.testing.assert_frame_equal(one.table, again.table)
    assert one.summary == again.summary


def test_runs_of_another_shape_or_without_a_model_are_refused(folder):
    run = hs.load(folder)
    fewer = hs.Run(run.heads[run.heads["head"] < 3], run.evidence, run.rules, run.info)
    with pytest.raises(RunError, match="2 layers × 4 heads, but the run has 6 heads up to L1H2"):
        hs.redundancy(fewer)
    patterns = hs.score_patterns(
        [np.tril(np.ones((1, 2, 9, 9))) / np.arange(1, 10)[:, None]] * 8,
        None, [["<s>", *"abcdefgh"]] * 8, types=["positional"],
    )  # fmt: skip
    with pytest.raises(RunError, match="made from given patterns"):
        hs.redundancy(patterns)


def test_the_command_prints_a_table_and_writes_rows_and_a_picture(folder, tmp_path):
    out, picture = tmp_path / "rows.csv", tmp_path / "map.svg"
    done = headscope(
        "study", "redundancy", folder, "--out", out, "--figure", picture, "--windows", "9", "-q"
    )
    assert done.returncode == 0, done.stderr
    assert "8 heads, 108 queries of 9 windows" in done.stdout
    assert re.search(r"^L1H3 +\w+ +\d+ +L\dH\d +0\.\d{3}", done.stdout, re.MULTILINE)
    assert re.search(r"\d clusters, mean silhouette -?\d\.\d\d", done.stdout)
    assert done.stdout.count("written to") == 2
    rows = pd.read_csv(out)
    assert list(rows.columns) == columns_of("redundancy")
    assert list(zip(rows["layer"], rows["head"], strict=True)) == [
        (i // 4, i % 4) for i in range(8)
    ]
    assert "<svg" in picture.read_text()


def test_the_map_marks_every_head_with_its_layer(folder):
    axes = hs.redundancy(folder, windows=2).figure().axes[0]
    assert [text.get_text() for text in axes.texts] == ["0"] * 4 + ["1"] * 4
