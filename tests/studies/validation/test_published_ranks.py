"""Which score of ours is held against which published one: retrieval with retrieval, not induction."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.errors import HeadscopeError, RunError
from headscope.relations import relations_of
from headscope.studies.validation.published_scores import PUBLISHED, RANK_COLUMNS
from headscope.studies.validation.verify import verify

LAYERS, HEADS = 6, 8
MODEL = "meta-llama/Llama-2-7b-hf"


@pytest.fixture(scope="module")
def run():
    """Masses of three relations in three orders that have nothing to do with one another."""
    n = 12
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(n)] * 2] for i in range(8)]
    length = 2 * n + 1
    even = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    patterns = [np.broadcast_to(even, (LAYERS, HEADS, length, length))] * len(tokens)
    made = hs.score_patterns(patterns, None, tokens, types="all", name=MODEL)
    first = made.evidence[made.evidence["relation"] == made.evidence["relation"].iloc[0]]
    rng = np.random.default_rng(0)
    rows = [
        first.assign(type=kind, relation=name, mass=rng.permutation(LAYERS * HEADS) / 100)
        for kind, name in (
            each.relation.split("/") for each in PUBLISHED.values() if "/" in each.relation
        )
    ]
    evidence = pd.concat(rows).drop_duplicates(["type", "relation", "layer", "head"])
    heads = made.heads.assign(
        entropy=rng.permutation(LAYERS * HEADS) / 20,
        mean_distance=rng.permutation(LAYERS * HEADS) / 10,
    )
    return replace(made, evidence=evidence.sample(frac=1, random_state=0), heads=heads)


def masses(run, relation: str) -> np.ndarray:
    if "/" not in relation:
        return run.heads.sort_values(["layer", "head"])[relation].to_numpy().reshape(LAYERS, HEADS)
    kind, name = relation.split("/")
    own = run.evidence[(run.evidence["type"] == kind) & (run.evidence["relation"] == name)]
    found = np.full((LAYERS, HEADS), np.nan)
    for row in own.itertuples():
        found[row.layer, row.head] = row.mass
    return found


def written(path, **metrics: np.ndarray):
    layer, head = np.indices((LAYERS, HEADS))
    place = {"layer": layer.ravel(), "head": head.ravel()}
    tables = [
        pd.DataFrame(
            {"model": MODEL, "revision": "main", "metric": name, **place, "value": x.ravel()}
        )
        for name, x in metrics.items()
    ]
    pd.concat(tables).sample(frac=1, random_state=1).to_csv(path, index=False)
    return path


def test_every_published_score_is_held_against_a_relation_that_there_is():
    known = {relation.id for relation in relations_of(["all"])}
    assert {each.relation for each in PUBLISHED.values()} <= known | {"entropy", "mean_distance"}
    # Wu et al. 2024: retrieval; Feucht et al. 2025: copies by token and by word
    assert PUBLISHED["retrieval_score"].relation == "retrieval/value"
    assert PUBLISHED["retrieval_score"].quantity == "copied"
    assert PUBLISHED["induction_next_token_random"].relation == "induction/repeat"
    concept = PUBLISHED["concept_induction_end_token_text"]
    assert concept.relation == "concept-induction/next-word"


@pytest.mark.parametrize("metric", PUBLISHED)
def test_a_published_score_is_ranked_against_its_own_relation_and_no_other(run, tmp_path, metric):
    ours = masses(run, PUBLISHED[metric].relation)
    # another stimulus gives other values in the same order
    path = written(tmp_path / "scores.csv", **{metric: np.exp(5 * ours)})
    (row,) = verify(run, scores=path).ranks.to_dict("records")
    assert list(row) == RANK_COLUMNS
    assert row["spearman"] == pytest.approx(1)
    assert (row["metric"], row["relation"]) == (metric, PUBLISHED[metric].relation)
    assert (row["top"], row["shared"], row["heads"]) == (10, 10, LAYERS * HEADS)
    layer, head = np.unravel_index(ours.argmax(), ours.shape)
    assert row["best"] == f"L{layer}H{head}"
    assert row["p_value"] < 0.01
    assert "ours" in row["stimulus"] or row["quantity"] == "causal"


def test_induction_heads_in_the_place_of_retrieval_heads_do_not_hold(run, tmp_path):
    induction = masses(run, "induction/repeat")
    path = written(tmp_path / "scores.csv", retrieval_score=induction)
    evidence = run.evidence.copy()
    own = evidence["type"] == "retrieval"
    place = evidence.loc[own, ["layer", "head"]].to_numpy()
    evidence.loc[own, "mass"] = 1 - induction[place[:, 0], place[:, 1]]
    found = verify(replace(run, evidence=evidence), scores=path)
    (row,) = found.ranks.to_dict("records")
    assert row["spearman"] == pytest.approx(-1)  # with induction it would be 1
    assert row["shared"] == 0
    assert not found.holds


def test_a_run_without_retrieval_says_that_it_was_not_compared(run, tmp_path):
    score = masses(run, "retrieval/value")
    path = written(
        tmp_path / "scores.csv", retrieval_score=score, induction_next_token_random=score
    )
    without = run.evidence[run.evidence["type"] != "retrieval"]
    bare = replace(run, evidence=without)
    found = verify(bare, scores=path)
    assert found.ranks["metric"].tolist() == ["induction_next_token_random"]
    (note,) = [each for each in found.notes if "retrieval_score" in each]
    assert "has not scored retrieval/value" in note
    assert not any("not compared" in each for each in verify(run, scores=path).notes)


def test_the_command_prints_retrieval_with_its_relation(run, tmp_path):
    folder = tmp_path / "run"
    run.save(folder)
    path = written(tmp_path / "scores.csv", retrieval_score=masses(run, "retrieval/value"))
    done = CliRunner().invoke(app, ["verify", str(folder), "--scores", str(path)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "retrieval/value" in said
    assert "10 of 10 the same" in said


NEURONPEDIA = {
    "prev_token_score": "positional/offset-1",
    "self_attention_score": "positional/offset-0",
    "induction_score": "induction/natural",
    "pattern_entropy": "entropy",
    "qk_distance": "mean_distance",
}


def scatter(folder, run, name=MODEL, **changes):
    """What Neuronpedia publishes of a model: a row per head, and what it is of beside it."""
    folder.mkdir(exist_ok=True)
    ours = {metric: masses(run, relation) for metric, relation in NEURONPEDIA.items()}
    rows = [
        {"layer": layer, "head": head}
        | {metric: round(float(x[layer, head]) / 2, 4) for metric, x in ours.items()}
        | {"qk_distance_variance": 2.5}
        for layer, head in np.ndindex(LAYERS, HEADS)
    ]
    rows[5] |= changes
    (folder / "scatter_data.json").write_text(json.dumps(rows) + "\n")
    if name is not None:
        config = {"model_name": name, "np_model_id": "llama", "dataset_name": "the/pile"}
        (folder / "config.json").write_text(json.dumps(config))
    return folder / "scatter_data.json"


@pytest.mark.parametrize("name", [MODEL, None])
def test_neuronpedia_s_scores_are_ranked_as_they_are_published(run, tmp_path, name):
    found = verify(run, scores=scatter(tmp_path / "pile", run, name))
    ranks = found.ranks.set_index("metric")
    assert ranks["relation"].to_dict() == NEURONPEDIA
    assert ranks["spearman"].to_list() == pytest.approx([1] * 5)
    assert (ranks["shared"] == 10).all()
    assert found.model == MODEL
    assert found.holds
    assert [note for note in found.notes if "qk_distance_variance" in note] == [
        "not compared, for nothing here is like it: qk_distance_variance"
    ]
    reversed_ = run.evidence.assign(mass=1 - run.evidence["mass"])
    backwards = verify(replace(run, evidence=reversed_), scores=tmp_path / "pile/scatter_data.json")
    assert backwards.ranks.set_index("metric")["spearman"]["induction_score"] == pytest.approx(-1)
    assert not backwards.holds


def test_a_hybrid_s_layers_may_have_gaps(run, tmp_path):
    """Neuronpedia has the layers with softmax attention alone, by their numbers in the model."""
    path = scatter(tmp_path / "pile", run)
    rows = [row | {"layer": 4 * row["layer"] + 3} for row in json.loads(path.read_text())]
    path.write_text(json.dumps(rows))
    apart = {
        name: table.assign(layer=4 * table["layer"] + 3)
        for name, table in (("evidence", run.evidence), ("heads", run.heads))
    }
    ranks = verify(replace(run, **apart), scores=path).ranks
    assert ranks["spearman"].to_list() == pytest.approx([1] * 5)
    assert ranks["heads"].eq(LAYERS * HEADS).all()
    with pytest.raises(
        RunError, match=r"this run has 6 layers × 8 heads, and .* 48 scores of 24 × 8"
    ):
        verify(run, scores=path)


def test_what_is_no_scatter_or_of_another_model_is_refused(run, tmp_path):
    other = scatter(tmp_path / "other", run, "google/gemma-2-2b")
    with pytest.raises(HeadscopeError, match=r"published model in that file.*google/gemma-2-2b"):
        verify(run, scores=other)
    missing = scatter(tmp_path / "missing", run, induction_score=None)
    with pytest.raises(RunError, match=r"induction_score of .* has 47 scores"):
        verify(run, scores=missing)
    for change in ({"head": "x"}, {"layer": None}, {"induction_score": "high"}, {"a": [1]}):
        path = scatter(tmp_path / "broken", run, **change)
        with pytest.raises(RunError, match=r"scatter_data\.json: no list of heads.*; give Neuronp"):
            verify(run, scores=path)
    twice = scatter(tmp_path / "twice", run, head=6)
    with pytest.raises(RunError, match="a head is there twice"):
        verify(run, scores=twice)
    for text in ("{}", "[]", "[1, 2]", "nonsense", "[" * 10**5, '[{"layer": 0}]'):
        path.write_text(text)
        with pytest.raises(RunError, match=r"scatter_data\.json: no list of heads"):
            verify(run, scores=path)
    config = scatter(tmp_path / "config", run).with_name("config.json")
    config.write_text("[]")
    with pytest.raises(RunError, match="no list of heads"):
        verify(run, scores=tmp_path / "config" / "scatter_data.json")
