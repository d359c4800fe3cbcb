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
from headscope.studies.prune.head_importance import head_importance, layer_normalised
from headscope.studies.prune.pruning_curve import CURVE, DRAWS, prune
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
    curve = pruning.curve
    assert list(curve.columns) == [*CURVE, "kept_delimiter", "kept_unclassified"]
    assert curve.groupby("order", sort=False)["draw"].nunique().to_dict() == {
        "importance": 1, "random": DRAWS, "type": 1,
    }  # fmt: skip
    for _, rows in curve.groupby(["order", "draw"]):
        assert rows["share"].tolist() == [i / 10 for i in range(11)]
        assert rows["masked"].tolist() == [0, 1, 2, 2, 3, 4, 5, 6, 6, 7, 8]
        left = rows["kept_delimiter"] + rows["kept_unclassified"]
        assert (left + rows["masked"] == 8).all()
    ends = curve[curve["share"].isin([0, 1])].groupby("share")["loss"].nunique()
    assert ends.tolist() == [1, 1]
    draws = curve[(curve["order"] == "random") & (curve["masked"] == 4)]["loss"]
    assert draws.nunique() > 1


def test_heads_are_ranked_on_other_windows_than_the_loss(pruning, gpt2_folder, story):
    """Both recomputed here from the windows themselves."""
    model = load_model(str(gpt2_folder))
    windows = text_windows(model, story)
    from headscope.studies.prune.pruning_curve import _halves

    ranking, judging = _halves(windows)
    names = [{window.name for window in half} for half in (ranking, judging)]
    assert not names[0] & names[1]
    assert names[0] | names[1] == {window.name for window in windows}
    expected = layer_normalised(head_importance(model, ranking))
    assert pruning.importance == pytest.approx(expected)
    assert pruning.curve["loss"][0] == pytest.approx(loss(model, judging).mean)


def test_the_least_important_heads_go_first(pruning, gpt2_folder, story):
    from headscope.studies.prune.pruning_curve import _halves

    ordered = pruning.heads.sort_values("importance")
    mask = torch.ones(2, 4)
    for row in ordered.head(3).itertuples():
        mask[row.layer, row.head] = 0
    model = load_model(str(gpt2_folder))
    _, judging = _halves(text_windows(model, story))
    expected = loss(model, judging, HeadsScaled.by_row(model, mask)).mean
    curve = pruning.curve
    own = curve[(curve["order"] == "importance") & (curve["masked"] == 3)]
    assert own["loss"].item() == pytest.approx(expected)


def test_by_type_unclassified_heads_go_first_then_sinks_then_the_rest(pruning, run):
    from headscope.studies.prune.pruning_curve import _orders, _types

    types = _types(run, pruning.model)
    order = _orders(pruning.importance, types, 0)["type", 0].tolist()
    # heads numbered through both layers: 0.3 and 1.2 have no tag, 0.0 and 1.0 only the first token
    assert set(order[:2]) == {3, 6}
    assert set(order[2:4]) == {0, 4}
    assert set(order[4:]) == {1, 2, 5, 7}
    flat = pruning.importance.ravel()
    for part in (order[:2], order[2:4], order[4:]):
        assert flat[part].tolist() == sorted(flat[part])
    by_type = pruning.curve[pruning.curve["order"] == "type"]
    assert by_type["kept_unclassified"].tolist()[:3] == [2, 1, 0]
    assert by_type["kept_delimiter"].tolist()[-2:] == [1, 0]


def test_without_a_run_there_is_no_order_by_type(gpt2_folder, story):
    curve = prune(str(gpt2_folder), story).curve
    assert list(curve.columns) == CURVE
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
    curve, heads = pd.read_csv(out), pd.read_csv(tmp_path / "p-heads.csv")
    own = pruning.curve[pruning.curve["order"] == "importance"]["loss"]
    written = curve[curve["order"] == "importance"]["loss"]
    assert np.allclose(written, own, rtol=1e-5)
    assert heads["importance"].to_numpy() == pytest.approx(pruning.importance.ravel(), rel=1e-4)
    rise = curve.loc[(curve["order"] == "importance") & (curve["share"] == 0.5), "rise"].item()
    assert ["50%", "4", f"{rise:+.4f}"] in [line.split()[:3] for line in told.splitlines()]
    best = heads.loc[heads["importance"].idxmax()]
    assert f"most important heads:  L{best['layer']:.0f}H{best['head']:.0f}" in told
    assert "heads left by type" in told
    assert figure.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "nowhere"], "nowhere: no run here"),
        (["--max-tokens", "-3"], "max_tokens is -3"),
        (["--seed", "-1"], "seed is -1"),
        (["--out", "table.json"], "cannot write .json; choose .csv"),
    ],
)
def test_bad_input_ends_with_one_message_and_nothing_written(
    gpt2_folder, tmp_path, monkeypatch, command, arguments, message
):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("study", "prune", gpt2_folder, "--out", "x.csv", *arguments, "-q")
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []
