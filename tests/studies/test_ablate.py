"""Ablated heads and knocked-out edges: reruns equal a model that is changed by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.causal.head_set import output_norms
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.run import load
from headscope.runs.tables import CAUSE_TABLE
from headscope.statistics.causes import (
    AWAY,
    CAUSAL_EFFECT,
    CAUSE_COLUMNS,
    NEAR,
    NO_EFFECT,
    UNTESTED,
    judged,
)
from headscope.statistics.in_words import causes_in_words
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.prompts import MinimalPair, agreement_pairs
from headscope.stimuli.repeat import repeat_windows
from headscope.studies import ablate, ablate_texts
from headscope.studies.ablate import HeadOfType, ablate_heads, clean_runs
from headscope.studies.ablate_texts import minimal_pairs, near_and_away, repeats
from tests.helpers.encoders import HEADS, WIDTH, WORDS, corpus, hand_built, save_tokenizer
from tests.helpers.run_folders import data_of
from tests.helpers.shell import headscope


@pytest.fixture(scope="module")
def rerunner(model_folder):
    return Rerunner(load_model(str(model_folder)))


def output_matrices(network) -> list[torch.Tensor]:
    """W_O of each layer as `[in out]`, views."""
    names = (".attn.c_proj", ".attention.dense", ".self_attn.o_proj")
    found = [m for n, m in network.named_modules() if n.endswith(names)]
    return [m.weight.data if type(m).__name__ == "Conv1D" else m.weight.data.T for m in found]


def test_a_pairs_score_is_the_log_odds_of_whole_sentences(rerunner, model_folder):
    pairs = [
        MinimalPair("the old key is here", "the old keys is here"),
        *agreement_pairs(3, seed=1),
    ]
    tokenizer = rerunner.model.tokenizer
    text = minimal_pairs("agreement", pairs, tokenizer, ["syntactic"])
    heads = [HeadOfType((1, 2), "syntactic", ())]
    table = ablate_heads(rerunner, [text], heads, method="zero", seed=0)
    network = AutoModelForCausalLM.from_pretrained(model_folder).eval()

    def log_probability(text: str) -> float:
        ids = tokenizer.encode(Document("t", text, ())).tokens
        tokens = torch.tensor([[tokenizer.bos, *ids]])
        with torch.no_grad():
            logp = network(tokens).logits[0, :-1].log_softmax(-1)
        return float(logp.gather(1, tokens[0, 1:, None]).sum())

    odds = [log_probability(p.good) - log_probability(p.bad) for p in pairs]
    (row,) = table.to_dict("records")
    assert row["n"] == 4
    assert row["clean"] == pytest.approx(np.mean(odds), abs=1e-3)
    assert row["ablated"] - row["clean"] == pytest.approx(row["effect"])


def test_near_are_predictions_made_at_queries(rerunner, annotated):
    model, relations = rerunner.model, relations_of(["delimiter"])[:1]
    text = TextWindows(annotated, model.tokenizer, max_tokens=300, max_length=90, seed=0)
    windows = list(text)
    stimulus = near_and_away(windows, {"delimiter": relations})
    near, away = stimulus.scores
    assert (near.behaviour, away.behaviour) == ("near", "away")
    assert near.types == away.types == {"delimiter"}
    expected = {
        (row, int(query) + 1)
        for row, window in enumerate(windows)
        for query in relations[0].pairs(window).queries
        if query + 1 < len(window)
    }
    places = set(
        zip(
            stimulus.rows.row[near.prediction], stimulus.rows.position[near.prediction], strict=True
        )
    )
    assert {(int(a), int(b)) for a, b in places} == expected
    assert len(near.prediction) + len(away.prediction) == sum(len(w) - 1 for w in windows)


def test_a_mean_is_of_all_windows_and_not_of_a_batch(rerunner, monkeypatch):
    model = rerunner.model
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = repeat_windows(vocabulary, model.tokenizer, max_length=60, seed=0)[:6]
    heads = [HeadOfType((1, 2), "induction", ((0, 1),))]
    tables = []
    for tokens in (128, 4_096):
        monkeypatch.setattr(ablate_texts, "BATCH_TOKENS", tokens)
        text = repeats(windows, ["induction"])
        assert (len(list(text.batches("cpu"))) > 1) == (tokens == 128)
        tables.append(ablate_heads(rerunner, [text], heads, method="mean", seed=0))
    pd.testing.assert_frame_equal(*tables, rtol=1e-4)


def test_repeats_are_scored_from_the_second_token_of_the_copy(rerunner):
    model = rerunner.model
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = repeat_windows(vocabulary, model.tokenizer, max_length=60, seed=0)[:3]
    stimulus = repeats(windows, ["induction"])
    for row, window in enumerate(windows):
        own = stimulus.rows.position[stimulus.rows.row == row]
        assert own.tolist() == list(range(window.copy_length + 2, 2 * window.copy_length + 1))


def test_the_command_writes_causes_that_why_and_the_report_show(mini_run, tmp_path):
    folder = shutil.copytree(mini_run, tmp_path / "mini")
    run = load(folder)
    row = run.evidence[run.evidence["tagged"] & (run.evidence["type"] == "induction")].iloc[0]
    name = f"L{row['layer']}H{row['head']}"
    done = headscope("ablate", folder, "--heads", name, "--how", "zero", "--queries", "24")
    assert done.returncode == 0, done.stderr
    assert "induction" in done.stdout
    table = CAUSE_TABLE.read((folder / CAUSE_TABLE.file).read_bytes())
    assert table is not None
    assert set(zip(table["layer"], table["head"], strict=True)) == {(row["layer"], row["head"])}
    lines = causes_in_words(table, int(row["layer"]), int(row["head"]))
    assert "knocking out the edges to its targets" in lines[0]
    line = next(each for each in lines if each.startswith("induction: "))
    assert "ablating it (zero) changes the log-probability of repeated tokens" in line
    said = headscope("why", folder, name, "--full").stdout
    assert line in " ".join(said.split())  # lines are folded
    assert line[:60] in data_of(folder / "report.html")


@pytest.mark.parametrize("only", ["both", "heads", "edges"])
def test_each_head_that_is_named_is_tested_or_refused_by_name(
    mini_run, tmp_path, monkeypatch, only
):
    monkeypatch.setattr(ablate, "CONTROLS", 1)  # each takes as long as the head itself
    run = load(mini_run)
    untagged = next(iter(run.heads.index[run.heads["tags"] == ""]))
    tagged = next(iter(run.heads.index[run.heads["primary"] == "positional"]))
    folder = shutil.copytree(mini_run, tmp_path / "mini")
    earlier = folder / CAUSE_TABLE.file
    earlier.write_text("an earlier table")
    options = ("--only", only, "--queries", "24", "--overwrite")
    done = headscope("ablate", folder, "--heads", f"{tagged},{untagged}", *options)
    if only == "edges":
        assert done.returncode == 2
        assert untagged in done.stderr
        assert tagged not in done.stderr
        assert earlier.read_text() == "an earlier table"
        return
    assert done.returncode == 0, done.stderr
    table = CAUSE_TABLE.read(earlier.read_bytes())
    names = {f"L{layer}H{head}" for layer, head in zip(table["layer"], table["head"], strict=True)}
    assert names == {tagged, untagged}
    assert untagged in done.stdout


def test_a_head_whose_type_has_no_prediction_in_the_text_keeps_a_row(rerunner):
    heads = [HeadOfType((1, 2), "words", ())]
    table = judged(ablate_heads(rerunner, [], heads, method="mean", seed=0), set())
    assert table["verdict"].str.startswith(UNTESTED).tolist() == [True]
    assert causes_in_words(table, 1, 2) == [f"words: {table['verdict'][0]}"]


def test_norms_are_those_of_z_times_each_head_s_rows_of_w_o(rerunner):
    rng = np.random.default_rng(0)
    windows = [Window(str(n), rng.integers(1, 90, n), ("a",) * n) for n in (14, 9)]
    sums = np.zeros((2, 4))
    nothing = torch.zeros(0, dtype=torch.long)
    for window in windows:
        tokens, length = torch.from_numpy(window.tokens)[None], torch.tensor([len(window)])
        z = rerunner.clean(TokenRows(tokens, length, nothing, nothing)).z
        for layer, matrix in enumerate(output_matrices(rerunner.network)):
            for head in range(4):
                output = z[layer][0, 1:, head] @ matrix[8 * head : 8 * head + 8]
                sums[layer, head] += float(output.norm(dim=-1).sum())
    norms = output_norms(rerunner, clean_runs(rerunner, windows))
    assert list(norms) == list(np.ndindex(2, 4))
    assert np.allclose([*norms.values()], sums.ravel() / (13 + 8), rtol=1e-4)


def test_a_behaviour_that_the_model_lacks_gives_no_verdict():
    """mini knows no agreement: without this condition, heads would get a verdict."""
    model = load_model("mini")
    text = minimal_pairs("agreement", agreement_pairs(60, seed=0), model.tokenizer, ["syntactic"])
    heads = [HeadOfType((5, 0), "syntactic", tuple((2, head) for head in range(5)))]
    table = judged(ablate_heads(Rerunner(model), [text], heads, method="mean", seed=0), set())
    assert table["verdict"].tolist() == [f"{UNTESTED}: the model cannot do it"]
    assert np.isnan(table["q_value"]).all()


def test_fewer_than_five_heads_to_compare_with_give_no_verdict(rerunner):
    pairs = [MinimalPair("the old keys were", "the old keys was"), *agreement_pairs(20, seed=1)]
    text = minimal_pairs("agreement", pairs, rerunner.model.tokenizer, ["syntactic"])
    for score in text.scores:  # an improbable bad sentence alone is above chance
        score.weight[:] = np.where(score.weight > 0, 0.0, -1.0)
    heads = [HeadOfType((1, 0), "syntactic", ((1, 1), (0, 1)))]
    table = judged(ablate_heads(rerunner, [text], heads, method="zero", seed=0), set())
    assert table["verdict"].iloc[0].startswith(f"{UNTESTED}: fewer than 5 heads")


WRITER, SILENT = HEADS["syntactic/obj:dep>head"], HEADS["syntactic/obj:head>dep"]
DOCUMENTS = 24
WORDS_READ = DOCUMENTS * 8 * 13


@pytest.fixture(scope="module", params=["masked", "state"])
def causes(request, tmp_path_factory):
    """An encoder whose heads for objects look alike, of which one writes and one does not."""
    folder = tmp_path_factory.mktemp(request.param)
    network = hand_built()
    layer, generator = network.bert.encoder.layer[0].attention, torch.Generator().manual_seed(0)
    writes = slice(WRITER * WIDTH, (WRITER + 1) * WIDTH)
    value, output = layer.self.value.weight, layer.output.dense.weight
    with torch.no_grad():
        value[writes] = 0.3 * torch.randn(value[writes].shape, generator=generator)
        output[:, writes] = 0.3 * torch.randn(output[:, writes].shape, generator=generator)
    (network if request.param == "masked" else network.bert).save_pretrained(folder)
    save_tokenizer(WORDS, folder)
    text = folder / "pairs.conllu"
    text.write_text(corpus(DOCUMENTS, seed=0), encoding="utf-8")
    run = hs.classify(str(folder), text, max_tokens=6000, max_length=120, progress=False)
    return hs.ablate(run, progress=False)


def test_the_head_that_writes_has_a_causal_effect_and_the_other_has_none(causes):
    table = causes.table
    assert list(table.columns) == CAUSE_COLUMNS
    alone = table[(table["kind"] == "head") & (table["type"] == "syntactic")]
    near = alone[alone["behaviour"].isin(NEAR)].set_index("head")
    away = alone[alone["behaviour"].isin(AWAY)].set_index("head")
    assert {WRITER, SILENT} == {*near.index} == {*away.index}
    assert not near.loc[SILENT, "effect"]
    if near.loc[WRITER, "behaviour"] == "masked-near":
        # it knows nothing of words, masked or not
        assert {*near["verdict"]} == {"not tested: the model cannot do it"}
        assert ((near["n"] + away["n"]) / WORDS_READ).between(0.13, 0.16).all()
        return
    assert near.loc[WRITER, "effect"] < 2 * away.loc[WRITER, "effect"] < 0
    assert near.loc[WRITER, "verdict"] == CAUSAL_EFFECT
    assert near.loc[SILENT, "verdict"] == NO_EFFECT
    assert not near.loc[WRITER, "clean"]
    (line,) = causes_in_words(table[table["kind"] == "head"], 0, WRITER)
    assert "changes the last state at its queries from 0.00 to" in line
