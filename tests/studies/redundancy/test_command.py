"""Redundancy of small models, and the command line as its users see it."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.errors import CorpusError, HeadscopeError, RunError
from headscope.measure.study_windows import evenly
from headscope.models.load import load_model
from headscope.stimuli.text import TextWindows
from headscope.studies.redundancy.redundancy_result import name_points
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
    assert found.queries == count == 15
    np.testing.assert_allclose(found.distances, total / count, atol=1e-5)
    nearest = (total + 99 * np.eye(8)).argmin(1)
    assert found.heads["nearest"].tolist() == [f"L{i // 4}H{i % 4}" for i in nearest]
    np.testing.assert_allclose(
        found.heads["distance"], (total / count)[range(8), nearest], atol=1e-5
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
    assert found.distances[5, 7] == pytest.approx(0, abs=1e-9)
    heads = found.heads.set_index(["layer", "head"])
    assert heads.loc[(1, 1), "nearest"] == "L1H3"
    assert heads.loc[(1, 3), "nearest"] == "L1H1"
    assert heads.loc[(1, 1), "cluster"] == heads.loc[(1, 3), "cluster"]
    assert heads["cluster"].nunique() > 1
    rest = found.distances[np.triu_indices(8, 1)]
    assert np.sort(rest)[1] > 0.01  # only these two


def test_a_grouped_model_has_its_groups_compared(grouped, folder):
    found = hs.redundancy(grouped, windows=8, queries=4)
    groups = found.groups.set_index("group")
    # two layers of four heads, two for each key/value head
    assert groups.loc["same key/value group", "pairs"] == 4
    assert groups.loc["other group of the layer", "pairs"] == 8
    own = np.mean([found.distances[i, i + 1] for i in (0, 2, 4, 6)])
    assert groups.loc["same key/value group", "mean"] == pytest.approx(own)
    assert "same key/value group − other group of the layer" in set(found.tests["test"])
    assert "same key/value group" not in set(hs.redundancy(folder, windows=2).groups["group"])


def test_the_same_run_gives_the_same_numbers(folder):
    one, again = (hs.redundancy(folder, windows=8, queries=3) for _ in range(2))
    pd.testing.assert_frame_equal(one.heads, again.heads)
    pd.testing.assert_frame_equal(one.groups, again.groups)


def test_every_query_of_every_window_can_be_read(folder):
    found = hs.redundancy(folder, windows=10_000, queries=10_000)
    assert any(note.startswith("10000 windows were asked for, but") for note in found.notes)
    assert 1500 < found.queries < 2000 + 64


def test_progress_ends_at_all_tokens(folder):
    calls = []
    hs.redundancy(folder, windows=3, queries=1, progress=lambda *c: calls.append(c))
    assert len(calls) == 3
    assert calls[-1][0] == calls[-1][1]


def test_bad_input_is_refused_with_what_would_do(folder, tmp_path):
    with pytest.raises(HeadscopeError, match="windows is 0, expected a whole number from 1"):
        hs.redundancy(folder, windows=0)
    with pytest.raises(CorpusError, match=r"nowhere.txt: no such corpus file or folder"):
        hs.redundancy(folder, tmp_path / "nowhere.txt")
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
    assert re.search(r"^same layer +12 +0\.\d{3} +0\.\d{3} … 0\.\d{3}", done.stdout, re.MULTILINE)
    assert re.search(r"silhouette -?\d\.\d\d: (clear|weak|hardly any) clusters", done.stdout)
    assert done.stdout.count("written to") == 2
    rows = pd.read_csv(out)
    assert list(rows.columns) == columns_of("redundancy")
    assert list(zip(rows["layer"], rows["head"], strict=True)) == [
        (i // 4, i % 4) for i in range(8)
    ]
    assert "<svg" in picture.read_text()


def test_csv_and_json_are_for_programs(folder, tmp_path):
    arguments = ["study", "redundancy", str(folder), "--windows", "4", "-q"]
    out = tmp_path / "rows.csv"
    csv = CliRunner().invoke(app, [*arguments, "--format", "csv", "--out", str(out)])
    assert csv.stdout == out.read_text()
    content = json.loads(CliRunner().invoke(app, [*arguments, "--format", "json"]).stdout)
    assert content["unit"] == "bits"
    assert len(content["heads"]) == 8
    # four windows cannot say how sure they are
    assert content["groups"][0] == {
        "group": "all", "pairs": 28, "mean": content["groups"][0]["mean"],
        "ci_low": None, "ci_high": None,
    }  # fmt: skip
    assert content["notes"] == ["4 windows, fewer than 8: no intervals"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "rows.txt"], "rows.txt: cannot write .txt; choose .csv"),
        (["--figure", "map.doc"], "map.doc: cannot write .doc; choose .png, .svg, .pdf"),
        (["--windows", "0"], "windows is 0, expected a whole number from 1"),
        (["--corpus", "nowhere"], "nowhere: no such corpus file or folder"),
    ],
)
def test_bad_options_end_with_one_message_and_exit_code_2(folder, tmp_path, arguments, message):
    done = headscope("study", "redundancy", folder, *arguments, "-q", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"headscope: {message}\n"
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_run_ends_with_exit_code_2(tmp_path):
    done = headscope("study", "redundancy", tmp_path, "-q")
    assert done.returncode == 2
    assert "no run here (run.json is missing)" in done.stderr


def test_the_map_marks_every_head_and_names_them_where_they_are_few(folder):
    found = hs.redundancy(folder, windows=2)
    axes = found.figure().axes[0]
    names = {text.get_text() for text in axes.texts}
    assert {f"L{i // 4}H{i % 4}" for i in range(8)} <= names
    many = pd.concat([found.heads.assign(layer=9 + i) for i in range(9)], ignore_index=True)
    texts = [
        t.get_text() for t in type(found)(**{**vars(found), "heads": many}).figure().axes[0].texts
    ]
    assert texts == [str(9 + i) for i in range(9) for _ in range(8)]


def test_names_of_close_points_do_not_cover_each_other():
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    points = np.array([[0, 0], [0, 0], [0.001, 0], [0, 0.001], [1, 1]])
    axes.plot(*points.T, "o")
    name_points(figure, axes, points, ["L0H0", "L0H1", "L0H2", "L0H3", "L1H1"])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
