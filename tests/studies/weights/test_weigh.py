"""The tables of `headscope study weights`, its command, and what it shows on `mini`."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
from transformers import GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app, main
from headscope.corpus.shipped import MINI, data_folder
from headscope.errors import ModelError, RunError
from headscope.models.load import load_model
from headscope.studies.weights import head_factors, k_composition
from tests.helpers.models import save_model

COLUMNS = (
    "layer head ov_copying ov_copying_mlp0 qk_rank ov_rank k_from k_composition k_random_mean "
    "k_random_p999"
).split()
BESIDE = ["primary", "relation", "mass", "k_from_relation"]


@pytest.fixture(scope="module")
def mini():
    return hs.weights(MINI)


def test_a_row_per_head_for_every_layout(normed_folder):
    found = hs.weights(str(normed_folder))
    assert found.table.columns.tolist() == COLUMNS
    assert list(zip(found.table["layer"], found.table["head"], strict=True)) == [
        (layer, head) for layer in range(2) for head in range(4)
    ]
    first, second = found.table.iloc[:4], found.table.iloc[4:]
    assert first["ov_copying_mlp0"].isna().all()
    assert (first["k_from"] == "").all()
    assert second.notna().all(axis=None)
    # bounds of the scores
    assert found.table["ov_copying"].abs().max() <= 1
    assert second["k_composition"].between(0, 1).all()


def test_the_best_earlier_head_has_the_largest_score(mini):
    scores = k_composition(head_factors(load_model(MINI, device="cpu", engine="lens")))
    for row in mini.table.query("layer > 0").itertuples():
        own = scores[: row.layer, :, row.layer, row.head]
        assert row.k_composition == own.max().item()
        earlier = divmod(int(own.argmax()), own.shape[1])
        assert row.k_from == "L{}H{}".format(*earlier)


def test_minis_induction_heads_compose_with_its_previous_token_head_and_copy_behind_the_first_mlp(
    mini,
):
    """Which heads those are, patterns alone say: the last checkpoint's masses."""
    masses = pd.read_csv(data_folder() / "mini" / "emergence.csv")
    masses = masses[masses["step"] == masses["step"].max()]
    found = mini.table.merge(masses, on=["layer", "head"])
    previous = found.loc[found["previous"].idxmax()]
    induction = found[found["induction"] > 0.6]
    others = found[found["layer"].isin(induction["layer"]) & (found["induction"] < 0.2)]
    assert len(induction) >= 2
    assert len(others) >= 2
    assert set(induction["k_from"]) == {f"L{previous['layer']:.0f}H{previous['head']:.0f}"}
    assert (induction["k_composition"] > 1.3 * induction["k_random_p999"]).all()
    assert (others["k_composition"] < 1.2 * others["k_random_p999"]).all()
    assert (induction["ov_copying_mlp0"] > 0.95).all()
    assert (others["ov_copying_mlp0"] < 0.8).all()


def test_minis_embedding_itself_shows_no_copying(mini):
    """Its first MLP recodes tokens: what reads the plain embedding misjudges every later head."""
    assert (mini.table.query("layer > 0")["ov_copying"] < 0.2).all()


def test_a_loaded_model_and_its_name_give_the_same_and_the_seed_moves_the_baseline_alone(mini):
    again = hs.weights(load_model(MINI, device="cpu", engine="lens"), seed=1)
    baseline = ["k_random_mean", "k_random_p999"]
    pd.testing.assert_frame_equal(mini.table.drop(columns=baseline), again.table[COLUMNS[:-2]])
    assert (mini.table["k_random_p999"] != again.table["k_random_p999"]).all()


def test_one_layer_of_one_head_has_no_pairs(tokenizer, tmp_path):
    config = GPT2Config(
        n_embd=16, n_layer=1, n_head=1, n_positions=64, vocab_size=len(tokenizer),
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = hs.weights(str(tmp_path))
    assert found.table.columns.tolist() == COLUMNS
    assert found.table["k_from"].tolist() == [""]
    assert found.table["k_composition"].isna().all()


def test_rotary_and_grouped_models_say_what_their_scores_leave_out(normed_folder, layout):
    notes = " ".join(hs.weights(str(normed_folder)).notes)
    assert ("at distance 0" in notes) == (layout != "gpt2")
    assert ("share their keys and values" in notes) == (layout == "llama")


@pytest.fixture(scope="module")
def tiny_run(tokenizer, tmp_path_factory):
    base = tmp_path_factory.mktemp("weights")
    folder = save_model("gpt2", tokenizer, base / "model")
    corpus = base / "alice.txt"
    corpus.write_text("Alice was very tired. She looked at the old keys again. " * 40)
    hs.classify(str(folder), corpus, max_tokens=600, twin=False, out=base / "run")
    return base / "run"


def test_the_patterns_of_a_run_stand_beside_the_weights(tiny_run):
    found = hs.weights(tiny_run).table
    assert found.columns.tolist() == [*COLUMNS, *BESIDE]
    run = hs.load(tiny_run)
    patterns = run.heads.set_index(["layer", "head"])
    for row in found.itertuples():
        own = patterns.loc[(row.layer, row.head)]
        assert (row.primary, row.relation) == (own["primary"], own["relation"])
        assert row.mass == own["mass"] or (np.isnan(row.mass) and np.isnan(own["mass"]))
        if row.layer == 1:
            source = patterns.loc[(0, int(row.k_from.removeprefix("L0H")))]
            assert row.k_from_relation == source["relation"]
    pd.testing.assert_frame_equal(found, hs.weights(run).table)
    plain = hs.weights(run.info["places"]["model"])
    pd.testing.assert_frame_equal(found[COLUMNS], plain.table)


def test_a_run_whose_model_has_changed_or_that_never_had_one_is_refused(tiny_run):
    run = hs.load(tiny_run)
    run.info["model"]["weights_sha256"] = {"model.safetensors": "0" * 64}
    with pytest.raises(RunError, match=r"has other weights now than when this run was made"):
        hs.weights(run)
    patterns = np.tril(np.ones((1, 1, 9, 9))) / np.arange(1, 10)[:, None]
    bare = hs.score_patterns([patterns], None, [["<bos>", *"abcdabcd"]])
    with pytest.raises(RunError, match=r"made from given patterns"):
        hs.weights(bare)
    with pytest.raises(RunError, match=r"'main' is for the name of a model"):
        hs.weights(tiny_run, revision="main")


def test_the_command_prints_and_writes_what_the_library_returns(tiny_run, tmp_path):
    found = hs.weights(tiny_run)
    out = tmp_path / "new" / "weights.csv"
    done = CliRunner().invoke(app, ["study", "weights", str(tiny_run), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "copying alone is no label" in done.output
    pd.testing.assert_frame_equal(
        pd.read_csv(
            out, keep_default_na=False, na_values={c: "" for c in COLUMNS if c != "k_from"}
        )[COLUMNS],
        found.table[COLUMNS],
        rtol=1e-4,
        check_dtype=False,
    )
    printed = CliRunner().invoke(app, ["study", "weights", str(tiny_run), "--format", "json"])
    rows = json.loads(printed.output)["table"]
    assert list(rows[0]) == [*COLUMNS, *BESIDE]
    assert rows[0]["ov_copying_mlp0"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["./nowhere"], "no such folder"),
        (["mini", "--out", "heads.txt"], "choose .csv"),
        (["mini", "--revision", "main"], "is a local model"),
    ],
)
def test_bad_input_ends_with_one_message_and_exit_code_2(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["headscope", "study", "weights", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("headscope: ")
    assert error.count("\n") == 1
    assert message in error


def test_a_norm_of_another_kind_is_refused(gpt2_folder):
    model = load_model(str(gpt2_folder), engine="lens")
    model.bridge.cfg.normalization_type = "L2"
    with pytest.raises(ModelError, match=r"norms are of the kind 'L2'.*LN, LNPre, RMS, RMSPre"):
        hs.weights(model)
