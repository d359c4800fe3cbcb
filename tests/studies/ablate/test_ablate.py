"""Silencing heads: what is run again must equal a model that was changed by hand."""

from __future__ import annotations

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.corpus.controlled.minimal_pairs import (
    MinimalPair,
    agreement_pairs,
    anaphor_pairs,
    read_minimal_pairs,
)
from headscope.corpus.document import Document
from headscope.errors import ChoiceError, CorpusError, HeadscopeError, ModelError, RunError
from headscope.models.intervention import HeadsSet
from headscope.models.load import load_model
from headscope.models.rerun import Rerunner, TokenRows, silenced
from headscope.relations import relations_of
from headscope.run import load
from headscope.runs.folder import CAUSES
from headscope.runs.run_tables import CAUSE_TABLE
from headscope.statistics.causes import (
    BREAKS,
    UNTESTED,
    cause_lines,
    judged,
)
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.text import TextWindows
from headscope.studies.ablate.ablation_effects import ablate_groups
from headscope.studies.ablate.ablation_text import minimal_pairs, near_and_away, repeats
from headscope.studies.ablate.groups import Group, choose_groups
from tests.helpers.formats import columns_of
from tests.helpers.shell import headscope


@pytest.fixture(scope="module")
def rerunner(model_folder):
    return Rerunner(load_model(str(model_folder)))


@pytest.fixture(scope="module")
def rows(rerunner):
    tokens = torch.randint(1, 90, (4, 20), generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([20, 20, 12, 7])
    places = [(row, p) for row in range(4) for p in range(1, int(lengths[row]))]
    row, position = torch.tensor(places).T
    return TokenRows(tokens, lengths, row, position)


def by_hand(model_folder, rows, change) -> torch.Tensor:
    """Log-probabilities of transformers' own model, one row at a time, after a change to it."""
    network = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    change(network)
    found = []
    with torch.no_grad():
        for row, position in zip(rows.row, rows.position, strict=True):
            logits = network(rows.tokens[row, :position][None]).logits[0, -1]
            found.append(logits.log_softmax(-1)[rows.tokens[row, position]])
    return torch.stack(found)


def output_matrices(network) -> list[torch.Tensor]:
    """W_O of each layer as `[in out]`, views."""
    names = (".attn.c_proj", ".attention.dense", ".self_attn.o_proj")
    found = [m for n, m in network.named_modules() if n.endswith(names)]
    return [m.weight.data if type(m).__name__ == "Conv1D" else m.weight.data.T for m in found]


def test_the_clean_run_predicts_as_transformers_does(rerunner, model_folder, rows):
    clean = rerunner.clean(rows)
    assert torch.allclose(clean.scores, by_hand(model_folder, rows, lambda _: None), atol=1e-4)
    assert len(clean.inputs) == len(clean.z) == 2
    assert clean.z[0].shape == (4, 20, 4, 8)


def test_running_again_from_any_layer_without_a_change_changes_nothing(rerunner, rows):
    clean = rerunner.clean(rows)
    for layer in (0, 1):
        unchanged = HeadsSet({layer: [1]}, {layer: clean.z[layer][:, :, [1]]})
        again = rerunner.scores(clean, unchanged)
        assert torch.allclose(again, clean.scores, atol=1e-5)


@pytest.mark.parametrize("heads", [{0: [1]}, {1: [0, 3]}, {0: [2], 1: [1]}])
def test_zero_equals_a_model_without_these_rows_of_w_o(rerunner, model_folder, rows, heads):
    clean = rerunner.clean(rows)
    without = silenced("zero", clean, heads)

    def change(network):
        for layer, own in heads.items():
            for head in own:
                output_matrices(network)[layer][8 * head : 8 * head + 8] = 0

    found = rerunner.scores(clean, without)
    assert torch.allclose(found, by_hand(model_folder, rows, change), atol=1e-4)
    assert (found - clean.scores).abs().max() > 1e-2


def test_mean_leaves_out_the_first_token_and_padding(rerunner, rows):
    clean = rerunner.clean(rows)
    z = silenced("mean", clean, {1: [2]}).edit(1, clean.z[1])
    real = torch.cat([clean.z[1][r, 1 : int(n), 2] for r, n in enumerate(rows.lengths)])
    assert torch.allclose(z[:, :, 2], real.mean(0).expand(4, 20, -1), atol=1e-5)
    assert torch.equal(z[:, :, [0, 1, 3]], clean.z[1][:, :, [0, 1, 3]])


def test_resample_takes_another_rows_output_counted_round_its_length(rerunner, rows):
    clean = rerunner.clean(rows)
    z = silenced("resample", clean, {0: [3]}, 1).edit(0, clean.z[0])
    assert torch.equal(z[0, :, 3], clean.z[0][1, :, 3])
    assert torch.equal(z[1, 15, 3], clean.z[0][2, 15 - 12, 3])
    assert torch.equal(z[3, :, 3], clean.z[0][0, :, 3])


def test_a_pairs_score_is_the_log_odds_of_whole_sentences(rerunner, model_folder):
    pairs = [
        MinimalPair("the old key is here", "the old keys is here"),
        *agreement_pairs(3, seed=1),
    ]
    tokenizer = rerunner.model.tokenizer
    stimulus = minimal_pairs("agreement", pairs, tokenizer)
    table = ablate_groups(
        rerunner, [stimulus], [Group("type", "syntactic", ((1, 2),))], method="zero", seed=0
    )
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
    stimulus = near_and_away("text", windows, {"delimiter": relations})
    near, away = stimulus.readings
    assert (near.behaviour, away.behaviour) == ("near", "away")
    assert near.label == away.label == "delimiter"
    expected = {
        (row, int(query) + 1)
        for row, window in enumerate(windows)
        for query in relations[0].pairs(window).queries
        if query + 1 < len(window)
    }
    places = set(
        zip(stimulus.row[near.prediction], stimulus.position[near.prediction], strict=True)
    )
    assert {(int(a), int(b)) for a, b in places} == expected
    assert len(near.prediction) + len(away.prediction) == sum(len(w) - 1 for w in windows)


def test_repeats_are_scored_from_the_second_token_of_the_copy(rerunner):
    model = rerunner.model
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = repeat_windows(vocabulary, model.tokenizer, max_length=60, seed=0)[:3]
    stimulus = repeats(windows)
    for row, window in enumerate(windows):
        own = stimulus.position[stimulus.row == row]
        assert own.tolist() == list(range(window.copy_length + 2, 2 * window.copy_length + 1))


def test_minimal_pairs_differ_in_one_word_and_are_balanced():
    for pairs in (agreement_pairs(40, seed=3), anaphor_pairs(40, seed=3)):
        for pair in pairs:
            words = [(a, b) for a, b in zip(pair.good.split(), pair.bad.split(), strict=True)
                     if a != b]  # fmt: skip
            assert len(words) == 1
    ends = [pair.good.split()[-1] for pair in anaphor_pairs(40, seed=3)]
    assert ends.count("herself.") == 20


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("{", ":1: not a pair"),
        ('{"sentence_good": "a"}', ":1: not a pair"),
        ("[1]", ":1: not a pair"),
        ('{"sentence_good": "a", "sentence_bad": "a"}', ":1: two different sentences"),
        ('{"sentence_good": 1, "sentence_bad": 2}', ":1: two different sentences"),
    ],
)
def test_a_file_of_pairs_that_is_none_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "pairs.jsonl"
    path.write_text(text)
    with pytest.raises(CorpusError, match=message):
        read_minimal_pairs(path)
    with pytest.raises(CorpusError, match="no such corpus file"):
        read_minimal_pairs(tmp_path / "none.jsonl")


@pytest.fixture(scope="module")
def mini_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("causes") / "mini"
    options = {"types": ["positional", "delimiter", "induction"], "max_tokens": 3_000}
    hs.classify("mini", ["controlled", "gold"], out=folder, examples=False, **options)
    return folder


@pytest.mark.slow
def test_minis_induction_heads_are_what_repeats_need(mini_run):
    run = load(mini_run)
    table = run.ablate(how="mean", only="heads").table
    assert list(table.columns) == columns_of("causal.csv")
    together = table[(table["kind"] == "type") & (table["type"] == "induction")].iloc[0]
    assert together["agrees"]
    assert together["effect"] < 10 * min(0, together["control"])
    assert together["verdict"] == BREAKS
    assert together["effect"] < -1
    assert together["ci_low"] <= together["effect"] <= together["ci_high"]
    heads = {name for names in table["heads"] for name in names.split(";")}
    assert len(heads) > 4


def test_the_command_writes_causes_that_why_and_the_report_show(mini_run):
    run = load(mini_run)
    row = run.evidence[run.evidence["tagged"] & (run.evidence["type"] == "induction")].iloc[0]
    name = f"L{row['layer']}H{row['head']}"
    done = headscope("ablate", mini_run, "--heads", name, "--how", "zero", "--queries", "24", "-q")
    assert done.returncode == 0, done.stderr
    assert "induction" in done.stdout
    table = CAUSE_TABLE.read(mini_run, pd.DataFrame(), {})
    assert table is not None
    assert set(table["heads"]) == {name}
    lines = cause_lines(table, int(row["layer"]), int(row["head"]))
    assert "silencing the edges to its targets" in lines[0]
    line = next(each for each in lines if each.startswith("induction: "))
    assert "silencing it (zero) changes the log-probability of repeated tokens" in line
    said = headscope("why", mini_run, name).stdout
    assert line in " ".join(said.split())  # lines are folded
    assert line[:60] in (mini_run / "report.html").read_text()


def test_what_cannot_be_silenced_is_said(mini_run, gpt2_folder):
    run = load(mini_run)
    with pytest.raises(HeadscopeError, match="no head L9H9 in this run"):
        choose_groups(run, "L9H9", {}, seed=0)
    with pytest.raises(ChoiceError, match="choose from: mean, zero, resample"):
        run.ablate(heads="L0H0", how="max")
    with pytest.raises(
        ModelError,
        match="network, which the fused engine has; this model runs under the lens engine",
    ):
        Rerunner(load_model(str(gpt2_folder), engine="lens"))
    changed = {**run.info, "model": {**run.info["model"], "weights_sha256": {"a": "b"}}}
    other = hs.Run(run.heads, run.evidence, run.rules, changed)
    with pytest.raises(RunError, match="other weights now"):
        other.ablate()
    bad = headscope("ablate", mini_run, "--heads", "L99H1", "--overwrite")
    assert bad.returncode == 2
    assert "no head L99H1" in bad.stderr


def test_a_damaged_table_of_causes_is_named(mini_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(mini_run, folder)
    (folder / CAUSES).write_text("kind,effect\nhead,a lot\n")
    with pytest.raises(RunError, match=r"causal.csv: this table is damaged"):
        CAUSE_TABLE.read(folder, pd.DataFrame(), {})


def test_controls_are_distinct_and_alike_in_depth_and_size(mini_run):
    run = load(mini_run)
    rng = np.random.default_rng(0)
    norms = {
        (int(a), int(b)): float(rng.uniform(1, 3)) for a, b in run.heads[["layer", "head"]].values
    }
    groups = choose_groups(run, "tagged", norms, seed=0)
    types = {group.type: set(group.heads) for group in groups if group.kind == "type"}
    assert {group.kind for group in groups} == {"head", "type"}
    for group in groups:
        assert len(set(group.controls)) == len(group.controls) <= 5
        for control in group.controls:
            assert len(set(control)) == len(group.heads)
            assert not set(control) & types[group.type]
    (head,) = next(g.heads for g in groups if g.kind == "head")
    (own,) = (g for g in groups if g.heads == (head,) and g.type == groups[0].type)
    pool = [each for each in norms if each not in types[own.type]]
    layers = 1 + max(layer for layer, _ in norms)
    far = {
        each: abs(each[0] - head[0]) / layers + abs(np.log(norms[each] / norms[head]))
        for each in pool
    }
    assert [each for (each,) in own.controls] == sorted(pool, key=far.__getitem__)[:5]


def test_what_a_model_cannot_do_gives_no_verdict():
    """mini knows no agreement: without a gate, heads of cases agreed with it."""
    model = load_model("mini")
    stimulus = minimal_pairs("agreement", agreement_pairs(60, seed=0), model.tokenizer)
    others = tuple(((2, head),) for head in range(5))
    groups = [Group("head", "syntactic", ((5, 0),), others)]
    table = judged(ablate_groups(Rerunner(model), [stimulus], groups, method="mean", seed=0), set())
    assert table["verdict"].tolist() == [f"{UNTESTED}: the model cannot do it"]
    assert not table["agrees"].any()
    assert np.isnan(table["q_value"]).all()


def test_fewer_than_five_heads_to_compare_with_give_no_verdict(rerunner, tokenizer):
    pairs = [MinimalPair("the old keys were", "the old keys was"), *agreement_pairs(20, seed=1)]
    # what is always right is above chance
    easy = [MinimalPair(pair.good, pair.bad) for pair in pairs]
    stimulus = minimal_pairs("agreement", easy, rerunner.model.tokenizer)
    for reading in stimulus.readings:
        reading.weight[:] = np.where(reading.weight > 0, 0.0, -1.0)
    groups = [Group("head", "syntactic", ((1, 0),), (((1, 1),), ((0, 1),)))]
    table = judged(ablate_groups(rerunner, [stimulus], groups, method="zero", seed=0), set())
    assert table["verdict"].iloc[0].startswith(f"{UNTESTED}: fewer than 5 groups")
