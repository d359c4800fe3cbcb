"""Published heads and scores: from patterns that show them exactly, and from ones that do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, RunError
from headscope.models.load import load_model
from headscope.studies.validation.published_stimulus import diagonal_scores
from headscope.studies.validation.verify import verify

PUBLISHED = pd.read_csv(data_folder() / "published_scores.csv")


def matrix(metric: str, model: str = "gpt2-small") -> np.ndarray:
    table = PUBLISHED[(PUBLISHED["model"] == model) & (PUBLISHED["metric"] == metric)]
    layers, heads = table["layer"].max() + 1, table["head"].max() + 1
    return table.sort_values(["layer", "head"])["value"].to_numpy().reshape(layers, heads)


def published_patterns(n: int) -> np.ndarray:
    """Patterns on `[bos, r, r]` in which every head of GPT-2 small scores what is published."""
    induction = matrix("induction_random_repeat_len100")
    duplicate = matrix("duplicate_token_random_repeat")
    previous = matrix("prev_token_random_repeat")
    a = np.zeros((*induction.shape, 2 * n + 1, 2 * n + 1))
    first, second = np.arange(2, n + 1), np.arange(n + 1, 2 * n + 1)
    a[..., first, first - 1] = previous[..., None]
    a[..., second, second - n + 1] += induction[..., None]
    a[..., second, second - n] += duplicate[..., None]
    a[..., 0] += 1 - a.sum(-1)
    return a


@pytest.fixture(scope="module")
def gpt2_run(tmp_path_factory):
    n, documents = 26, 13  # another number than layers
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(n)] * 2] for i in range(documents)]
    patterns = [published_patterns(n)] * documents
    folder = tmp_path_factory.mktemp("gpt2") / "run"
    return hs.score_patterns(patterns, None, tokens, name="gpt2", out=folder), folder


def test_patterns_that_show_the_published_scores_agree_with_them(gpt2_run):
    result = verify(gpt2_run[0])
    assert result.model == "gpt2-small"
    assert result.holds
    same = result.scores.set_index("metric")
    assert same.loc["induction_random_repeat_len100", "pearson"] == pytest.approx(1, abs=1e-6)
    assert same.loc["duplicate_token_random_repeat", "largest_difference"] < 1e-6
    assert same["same_set"].all()
    assert any("own masses" in note for note in result.notes)


def test_the_known_answers_of_gpt2_small(gpt2_run):
    heads = verify(gpt2_run[0]).heads
    induction = heads[(heads["relation"] == "induction/repeat") & heads["found"]]
    strong = induction[induction["mass"] >= 0.8]
    assert {(r.layer, r.head) for r in strong.itertuples()} == {
        (5, 5), (5, 1), (6, 9), (7, 10), (7, 2),
    }  # fmt: skip
    duplicate = heads[(heads["relation"] == "induction/duplicate") & (heads["mass"] >= 0.5)]
    assert {(r.layer, r.head) for r in duplicate.itertuples()} == {(0, 5), (3, 0)}
    assert set(duplicate["found"]) == {True}


def test_fuzzy_heads_stand_apart_and_do_not_count(gpt2_run):
    result = verify(gpt2_run[0])
    fuzzy = result.heads[result.heads["kind"] == "fuzzy"]
    assert {(r.layer, r.head) for r in fuzzy.itertuples()} >= {(5, 8), (5, 9), (0, 10)}
    assert not fuzzy["found"].any()
    clear = result.heads[result.heads["kind"] == "clear"]
    repeat = clear[clear["relation"].str.startswith("induction/")]
    assert repeat["found"].all()


def test_heads_that_are_known_for_what_they_write_are_looked_up_there(gpt2_run):
    run, _ = gpt2_run
    written = pd.DataFrame(
        [
            (9, 9, "name-mover", "indirect-object", 2.5, True),
            (10, 7, "negative-name-mover", "indirect-object", -1.5, True),
            (10, 7, "suppress", "predicted", -0.125, False),
            (3, 0, "name-mover", "indirect-object", 0.0, False),
        ],
        columns=["layer", "head", "type", "effect", "lift", "tagged"],
    )
    assert not verify(run).heads["relation"].str.startswith("writes/").any()
    heads = verify(replace(run, effects=written)).heads
    own = heads[heads["relation"].str.startswith("writes/")]
    assert own[["layer", "head", "type", "mass", "found"]].values.tolist() == [
        [9, 9, "name_mover", 2.5, True],
        [10, 7, "negative_name_mover", -1.5, True],
        [10, 7, "copy_suppression", -0.125, False],
    ]


def test_other_scores_are_beyond_what_is_accepted(gpt2_run):
    run = gpt2_run[0]
    row = (run.evidence["relation"] == "repeat") & (run.evidence["layer"] == 5)
    changed = run.evidence.copy()
    changed.loc[row & (run.evidence["head"] == 5), "mass"] = 0.2
    result = verify(hs.Run(run.heads, changed, run.rules, run.info))
    scores = result.scores.set_index("metric")
    assert not result.holds
    assert scores.loc["induction_random_repeat_len100", "at"] == "L5H5"
    assert not scores.loc["induction_random_repeat_len100", "same_set"]


def test_the_command_prints_and_says_by_its_exit_code_whether_it_holds(gpt2_run):
    result = CliRunner().invoke(app, ["verify", str(gpt2_run[1])])
    assert result.exit_code == 0, result.output
    assert "clear heads found" in result.output
    assert "within" in result.output


def test_models_without_published_scores_are_refused(gpt2_run):
    with pytest.raises(ChoiceError, match=r"no published model named 'llama'.*gpt2-small"):
        verify(gpt2_run[0], model="llama")
    with pytest.raises(
        RunError, match=r"12 layers × 12 heads, and gpt2-xl has a published head L21"
    ):
        verify(gpt2_run[0], model="gpt2-xl")
    with pytest.raises(RunError, match=r"12 layers × 12 heads, and distilgpt2 has 6 × 12"):
        verify(gpt2_run[0], model="distilgpt2")


@pytest.fixture(scope="module")
def like_gpt2(tokenizer, tmp_path_factory):
    """A model of GPT-2 small's layers, heads and vocabulary, narrow and with random weights."""
    folder = tmp_path_factory.mktemp("like") / "gpt2-like"
    torch.manual_seed(3)
    config = GPT2Config(n_embd=24, n_layer=12, n_head=12, n_positions=256, vocab_size=50_257,
                        initializer_range=0.4)  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def notebooks_scores(folder) -> dict[str, np.ndarray]:
    """TransformerLens' Exploratory_Analysis_Demo, cell 96, with Hugging Face's own attention."""
    torch.manual_seed(0)
    original = torch.randint(100, 20000, size=(2, 100))
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        patterns = plain(torch.cat([original, original], 1), output_attentions=True).attentions

    def stripe(offset: int) -> np.ndarray:
        return np.array([
            [np.mean([a[b, h, q, q - offset] for b in range(2) for q in range(offset, 200)])
             for h in range(12)]
            for a in (pattern.numpy() for pattern in patterns)
        ])  # fmt: skip

    return {
        "prev_token_random_repeat": stripe(1),
        "duplicate_token_random_repeat": stripe(100),
        "induction_random_repeat_len100": stripe(99),
    }


def published_as(monkeypatch, scores: dict[str, np.ndarray]) -> None:
    rows = [
        ("gpt2-small", name, layer, head, value, "a notebook")
        for name, matrix in scores.items()
        for (layer, head), value in np.ndenumerate(matrix)
    ]
    table = pd.DataFrame(rows, columns=["model", "metric", "layer", "head", "value", "source"])
    read = pd.read_csv
    monkeypatch.setattr(
        pd,
        "read_csv",
        lambda path: table if path.name == "published_scores.csv" else read(path),
    )


def test_verify_reads_the_very_tokens_on_which_the_scores_were_published(like_gpt2, monkeypatch):
    published_as(monkeypatch, notebooks_scores(like_gpt2))
    run = hs.classify(str(like_gpt2), types=["induction"], twin=False, max_tokens=300)
    torch.manual_seed(9)
    before = torch.get_rng_state()
    result = verify(run, model="gpt2-small")
    assert result.measured
    assert len(result.scores) == 3
    assert (result.scores["largest_difference"] < 1e-5).all(), result.scores
    assert (result.scores["accepted"] == 0.01).all()
    assert result.holds
    assert torch.equal(torch.get_rng_state(), before)


def test_a_published_score_that_is_off_by_more_than_a_hundredth_does_not_hold(
    like_gpt2, monkeypatch
):
    scores = notebooks_scores(like_gpt2)
    scores["prev_token_random_repeat"][4, 11] += 0.02
    published_as(monkeypatch, scores)
    run = hs.classify(str(like_gpt2), types=["induction"], twin=False, max_tokens=300)
    result = verify(run, model="gpt2-small")
    wrong = result.scores.set_index("metric").loc["prev_token_random_repeat"]
    assert not wrong["within"]
    assert wrong["at"] == "L4H11"
    assert not result.holds


def test_a_model_with_another_vocabulary_is_not_measured_on_gpt2s_ids(tokenizer, tmp_path):
    torch.manual_seed(3)
    config = GPT2Config(n_embd=24, n_layer=12, n_head=12, n_positions=256, vocab_size=400)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "small")
    tokenizer.save_pretrained(tmp_path / "small")
    run = hs.classify(
        str(tmp_path / "small"), types=["induction", "positional"], twin=False, max_tokens=300
    )
    result = verify(run, model="gpt2-small")
    assert not result.measured
    assert any(
        "the published stimulus does not apply" in note
        and "a vocabulary of 400 tokens, not GPT-2's 50,257" in note
        for note in result.notes
    ), result.notes
    assert any("own masses" in note for note in result.notes)


def test_a_notebook_without_a_seed_is_said_to_be_one(like_gpt2):
    run = hs.classify(str(like_gpt2), types=["induction"], twin=False, max_tokens=300)
    result = verify(run, model="gpt2-small")
    assert any(
        note.startswith(
            "induction_random_repeat_len50: the notebook that published it sets no seed"
        )
        for note in result.notes
    )


def test_diagonal_scores_are_the_means_of_hugging_faces_own_diagonals(model_folder):
    model = load_model(str(model_folder))
    n = 20
    copied = np.random.default_rng(4).integers(0, model.vocabulary_size, (3, n))
    tokens = np.concatenate([copied, copied], 1)
    found = diagonal_scores(model, tokens, (1, n, n - 1))
    plain = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        patterns = plain(torch.from_numpy(tokens), output_attentions=True).attentions
    for layer, pattern in enumerate(patterns):
        a = pattern.numpy()
        for offset in (1, n, n - 1):
            slow = [
                np.mean([a[b, h, q, q - offset] for b in range(3) for q in range(offset, 2 * n)])
                for h in range(a.shape[1])
            ]
            np.testing.assert_allclose(found[offset][layer], slow, atol=1e-5)


def scores_file(path, values: np.ndarray, metric: str, model="EleutherAI/pythia-6.9b") -> None:
    layers, heads = np.indices(values.shape)
    table = pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), "value": values.ravel()})
    table.assign(model=model, revision="main", metric=metric).to_csv(path, index=False)


def test_a_file_of_published_scores_is_compared_by_rank(gpt2_run, tmp_path):
    run, folder = gpt2_run
    own = run.evidence[
        (run.evidence["type"] == "induction") & (run.evidence["relation"] == "repeat")
    ]
    masses = own.sort_values(["layer", "head"])["mass"].to_numpy().reshape(12, 12)
    # another stimulus gives other values in the same order
    scores_file(tmp_path / "same.csv", masses**3 / 2, "induction_next_token_random")
    (row,) = verify(run, model="pythia-6.9b", scores=tmp_path / "same.csv").ranks.to_dict("records")
    assert row["spearman"] == pytest.approx(1)
    assert (row["top"], row["shared"], row["best"]) == (10, 10, "L5H5")
    assert row["p_value"] < 0.01
    assert row["shared_control"] < 5
    assert "random tokens" in row["stimulus"]
    done = CliRunner().invoke(
        app, ["verify", str(folder), "--as", "pythia-6.9b", "--scores", str(tmp_path / "same.csv")]
    )
    assert done.exit_code == 0, done.output
    assert "10 of 10 the same" in " ".join(done.output.split())
    assert "another stimulus" in " ".join(done.output.split())


@pytest.mark.parametrize(("revision", "compared"), [("main", True), ("", True), ("step1", False)])
def test_scores_of_another_revision_are_said_to_be_of_another(
    gpt2_run, tmp_path, revision, compared
):
    path = tmp_path / "scores.csv"
    scores_file(path, np.random.default_rng(0).random((12, 12)), "induction_next_token_random")
    pd.read_csv(path).assign(revision=revision).to_csv(path, index=False)
    found = verify(gpt2_run[0], model="pythia-6.9b", scores=path)
    assert bool(len(found.ranks)) is compared
    said = [note for note in found.notes if "are of revision step1, and this run's is main" in note]
    assert bool(said) is not compared


def test_scores_in_another_order_within_layers_do_not_hold(gpt2_run, tmp_path):
    run = gpt2_run[0]
    own = run.evidence[
        (run.evidence["type"] == "induction") & (run.evidence["relation"] == "repeat")
    ]
    masses = own.sort_values(["layer", "head"])["mass"].to_numpy().reshape(12, 12)
    # each layer keeps its sum: only depth is known
    other = np.random.default_rng(3).permuted(masses, axis=1)
    scores_file(tmp_path / "other.csv", other, "induction_next_token_random")
    found = verify(run, model="EleutherAI/pythia-6.9b", scores=tmp_path / "other.csv")
    assert not found.holds
    assert found.ranks["p_value"].iloc[0] > 0.05
    assert found.table.equals(found.ranks)


def test_a_file_that_holds_no_scores_of_this_model_is_refused(gpt2_run, tmp_path):
    run, path = gpt2_run[0], tmp_path / "scores.csv"
    scores_file(path, np.zeros((2, 3)), "induction_next_token_random")
    with pytest.raises(RunError, match="12 layers × 12 heads, and induction_next_token_random"):
        verify(run, model="EleutherAI/pythia-6.9b", scores=path)
    with pytest.raises(ChoiceError, match="no published model in that file named 'gpt2'"):
        verify(run, scores=path)
    path.write_text("model,value\na,1\n")
    with pytest.raises(RunError, match="it has no column revision, metric, layer, head"):
        verify(run, scores=path)
    scores_file(path, np.full((12, 12), np.nan), "induction_next_token_random")
    with pytest.raises(RunError, match="no finite number"):
        verify(run, scores=path)


def test_what_nothing_here_is_like_is_named(gpt2_run, tmp_path):
    scores_file(tmp_path / "s.csv", np.eye(12), "duo_attention_gate_kv_head", "Mistral")
    found = verify(gpt2_run[0], model="Mistral", scores=tmp_path / "s.csv")
    assert found.ranks.empty
    assert any("not compared" in note and "duo_attention" in note for note in found.notes)
