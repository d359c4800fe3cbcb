"""Pruning: which heads go when, what is left, and what the command says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import headscope as hs
from headscope.errors import CorpusError, RunError
from headscope.measure.study_windows import text_windows
from headscope.models.intervention import HeadsScaled
from headscope.models.load import load_model
from headscope.models.loss import loss
from headscope.studies.prune import (
    COLUMNS,
    DRAWS,
    _halves,
    _orders,
    _type_ranks,
    head_importance,
    layer_normalised,
    prune,
)
from tests.helpers.models import save_model


@pytest.fixture(scope="module")
def run_folder(gpt2_folder, story, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "tiny"
    hs.classify(
        str(gpt2_folder), story, out=folder, types=["delimiter"], twin=False, examples=False
    )
    return folder


@pytest.fixture(scope="module")
def run(run_folder):
    """Six heads with a tag: two look only at the first token, one of the others there too."""
    run = hs.load(run_folder)
    kinds = {
        (0, 0): ["first-token"], (0, 1): ["first-token", "punctuation"], (0, 2): ["punctuation"],
        (1, 0): ["first-token"], (1, 1): ["punctuation"], (1, 3): ["punctuation"],
    }  # fmt: skip
    evidence, heads = run.evidence, run.heads
    keys = zip(evidence["layer"], evidence["head"], evidence["relation"], strict=True)
    evidence["tagged"] = [name in kinds.get((layer, head), ()) for layer, head, name in keys]
    heads["primary"] = [
        "delimiter" if key in kinds else "unclassified"
        for key in zip(heads["layer"], heads["head"], strict=True)
    ]
    return run


@pytest.fixture(scope="module")
def pruning(gpt2_folder, story, run):
    return prune(str(gpt2_folder), story, run=run)


def test_the_curve_has_every_order_and_step(pruning):
    curve = pruning.table
    assert list(curve.columns) == COLUMNS
    assert curve.groupby("order", sort=False)["draw"].nunique().to_dict() == {
        "importance": 1, "random": DRAWS, "type": 1,
    }  # fmt: skip
    for _, rows in curve.groupby(["order", "draw"]):
        assert rows["share"].tolist() == [i / 10 for i in range(11)]
        assert rows["masked"].tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8]
    ends = curve[curve["share"].isin([0, 1])].groupby("share")["loss"].nunique()
    assert ends.tolist() == [1, 1]
    draws = curve[(curve["order"] == "random") & (curve["masked"] == 4)]["loss"]
    assert draws.nunique() > 1


def test_heads_are_ranked_on_other_windows_than_the_loss(pruning, gpt2_folder, story):
    """Both recomputed here from the windows themselves."""
    model = load_model(str(gpt2_folder))
    windows = text_windows(model, story)
    ranking, judging = _halves(windows)
    names = [{window.name for window in half} for half in (ranking, judging)]
    assert not names[0] & names[1]
    assert names[0] | names[1] == {window.name for window in windows}
    expected = layer_normalised(head_importance(model, ranking))
    assert np.array(pruning.values["importance"]) == pytest.approx(expected)
    assert pruning.table["loss"][0] == pytest.approx(loss(model, judging).mean)


def test_the_least_important_heads_go_first(pruning, gpt2_folder, story):
    mask = torch.ones(8)
    mask[np.argsort(np.ravel(pruning.values["importance"]))[:3].tolist()] = 0
    model = load_model(str(gpt2_folder))
    _, judging = _halves(text_windows(model, story))
    expected = loss(model, judging, HeadsScaled.by_row(model, mask.view(2, 4))).mean
    curve = pruning.table
    own = curve[(curve["order"] == "importance") & (curve["masked"] == 3)]
    assert own["loss"].item() == pytest.approx(expected)


def test_by_type_unclassified_heads_go_first_then_sinks_then_the_rest(pruning, run, gpt2_folder):
    importance = np.array(pruning.values["importance"])
    ranks = _type_ranks(run, load_model(str(gpt2_folder)))
    order = _orders(importance, ranks, 0)["type", 0].tolist()
    # heads numbered through both layers: 0.3 and 1.2 have no tag, 0.0 and 1.0 only the first token
    assert set(order[:2]) == {3, 6}
    assert set(order[2:4]) == {0, 4}
    assert set(order[4:]) == {1, 2, 5, 7}
    flat = importance.ravel()
    for part in (order[:2], order[2:4], order[4:]):
        assert flat[part].tolist() == sorted(flat[part])


def test_without_a_run_there_is_no_order_by_type(gpt2_folder, story):
    curve = prune(str(gpt2_folder), story).table
    assert list(curve.columns) == COLUMNS
    assert set(curve["order"]) == {"importance", "random"}


def test_a_run_of_another_model_is_refused(run, tokenizer, tmp_path):
    other = save_model("gpt2", tokenizer, tmp_path / "other", spread=0.3)
    with pytest.raises(RunError, match="has other weights; classify the model that is to be"):
        prune(str(other), run=run)


def test_a_text_of_one_window_is_refused(gpt2_folder, tmp_path):
    (tmp_path / "short.txt").write_text("The keys were old.")
    with pytest.raises(CorpusError, match="the text is one window, and pruning needs two"):
        prune(str(gpt2_folder), tmp_path / "short.txt")


def test_the_command_prints_the_curve_and_writes_it(
    gpt2_folder, story, run_folder, tmp_path, command, pruning
):
    out, figure = tmp_path / "p.csv", tmp_path / "p.pdf"
    words = ("study", "prune", gpt2_folder, "--corpus", story, "--run", run_folder, "-q")
    code, told, err = command(*words, "--out", out, "--figure", figure)
    assert (code, err) == (0, "")
    curve = pd.read_csv(out)
    own = pruning.table[pruning.table["order"] == "importance"]["loss"]
    written = curve[curve["order"] == "importance"]["loss"]
    assert np.allclose(written, own, rtol=1e-5)
    rise = curve.loc[(curve["order"] == "importance") & (curve["share"] == 0.5), "rise"].item()
    assert ["0.500", f"{rise:.3f}"] in [line.split()[:2] for line in told.splitlines()]
    layer, head = np.unravel_index(np.argmax(pruning.values["importance"]), (2, 4))
    assert f"most important heads: L{layer}H{head}" in told
    assert figure.read_bytes().startswith(b"%PDF")
