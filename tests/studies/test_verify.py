"""Published scores that ship, and ranks of a run's heads against published scores."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import headscope as hs
from headscope.errors import RunError
from headscope.studies.verify import (
    FILE_COLUMNS,
    published_metrics,
    published_name,
    read_scores,
)

COMPARED = list(published_metrics()[["metric", "relation"]].itertuples(index=False, name=None))
RELATIONS = {relation for _, relation in COMPARED}
LAYERS, HEADS = 6, 8
MODEL = "meta-llama/Llama-2-7b-hf"


@pytest.fixture(scope="module")
def run():
    """A run in which each relation ranks the heads in another random order."""
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
        for kind, name in (relation.split("/") for relation in sorted(RELATIONS) if "/" in relation)
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
    rows = run.evidence[(run.evidence["type"] == kind) & (run.evidence["relation"] == name)]
    filled = np.full((LAYERS, HEADS), np.nan)
    for row in rows.itertuples():
        filled[row.layer, row.head] = row.mass
    return filled


def written(path, model=MODEL, revision="main", **metrics: np.ndarray):
    tables = []
    for name, values in metrics.items():
        layer, head = np.indices(values.shape)
        columns = {"layer": layer.ravel(), "head": head.ravel(), "value": values.ravel()}
        tables.append(pd.DataFrame(columns).assign(model=model, revision=revision, metric=name))
    pd.concat(tables).sample(frac=1, random_state=1).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(("metric", "relation"), COMPARED)
def test_a_score_is_ranked_against_its_relation_alone(run, tmp_path, metric, relation):
    ours = masses(run, relation)
    # another stimulus gives other values in the same order
    path = written(tmp_path / "scores.csv", **{metric: np.exp(5 * ours)})
    rows = hs.verify(run, scores=path).table.set_index("relation", drop=False)
    assert [(metric, name) for name in rows.index] == [row for row in COMPARED if row[0] == metric]
    row = rows.loc[relation]
    correlations = ["spearman", "spearman_low", "spearman_high", "within_layers"]
    assert row[correlations].to_list() == pytest.approx([1] * 4)
    assert (row["top"], row["shared"], row["heads"]) == (10, 10, LAYERS * HEADS)
    layer, head = np.unravel_index(ours.argmax(), ours.shape)
    assert row["best"] == f"L{layer}H{head}"
    assert row["p_value"] < 0.01


def test_heads_alike_within_layers_and_the_heads_that_differ_are_told(run, tmp_path):
    rng = np.random.default_rng(2)
    ours, published = rng.random((2, LAYERS, HEADS))
    ours[0] = published[0] = 0.5
    ours[3, 5], published[3, 5] = 0.001, 0.999
    heads = run.heads.assign(entropy=ours.ravel())
    path = written(tmp_path / "scores.csv", pattern_entropy=published)
    (row,) = hs.verify(replace(run, heads=heads), scores=path).table.to_dict("records")
    # the first layer has no order
    of_layers = [spearmanr(*layers)[0] for layers in zip(ours[1:], published[1:], strict=True)]
    assert row["within_layers"] == pytest.approx(np.mean(of_layers))
    bounds = [row["within_layers_low"], row["within_layers_high"]]
    assert min(of_layers) <= bounds[0] < np.mean(of_layers) < bounds[1] <= max(of_layers)
    assert row["spearman_low"] < row["spearman"] < row["spearman_high"]
    told = row["disagreeing"].split("; ")
    assert told[0] == "L3H5 0.999 0.001"
    assert len(told) == 3


def test_ranks_equal_scipy_s_and_depth_alone_is_not_significant(run, tmp_path):
    layer, _ = np.indices((LAYERS, HEADS))
    rng = np.random.default_rng(1)
    ours, published = (layer + 0.5 * rng.random((LAYERS, HEADS)) for _ in range(2))
    heads = run.heads.assign(entropy=ours.ravel())
    path = written(tmp_path / "scores.csv", pattern_entropy=published)
    (row,) = hs.verify(replace(run, heads=heads), scores=path).table.to_dict("records")
    assert row["spearman"] == pytest.approx(spearmanr(ours.ravel(), published.ravel())[0])
    first = [set(np.argsort(values.ravel())[-10:]) for values in (ours, published)]
    assert row["shared"] == len(first[0] & first[1])
    assert row["spearman"] == pytest.approx(row["spearman_control"], abs=0.02)
    # the 8 heads of the last layer, and 2 of 8 heads of the layer before by chance
    assert row["shared_control"] == pytest.approx(8 + 2 * 2 / 8, abs=0.1)
    assert row["p_value"] > 0.05


@pytest.mark.parametrize("name", ["mini", "someone/gpt2", ""])
def test_a_model_without_published_scores_is_refused(run, name):
    other = replace(run, info=run.info | {"model": run.info["model"] | {"name": name}})
    with pytest.raises(RunError, match="published"):
        hs.verify(other)


def revision_scores(path: Path, revision: str) -> Path:
    values = np.random.default_rng(0).random((LAYERS, HEADS))
    return written(path, revision=revision, pattern_entropy=values)


@pytest.mark.parametrize("revision", ["main", ""])
def test_scores_of_the_run_s_revision_are_compared(run, tmp_path, revision):
    result = hs.verify(run, scores=revision_scores(tmp_path / "scores.csv", revision))
    assert len(result.table) == 1


def test_scores_of_another_revision_are_refused(run, tmp_path):
    with pytest.raises(RunError, match="step1"):
        hs.verify(run, scores=revision_scores(tmp_path / "scores.csv", "step1"))


def test_metrics_that_are_not_compared_are_named(run, tmp_path):
    score = masses(run, "retrieval/value")
    path = written(
        tmp_path / "scores.csv", retrieval_score=score, induction_score=score, something_else=score
    )
    bare = replace(run, evidence=run.evidence[run.evidence["type"] != "retrieval"])
    result = hs.verify(bare, scores=path)
    assert set(result.table["metric"]) == {"induction_score"}
    not_scored, without_relation = result.notes[-2:]
    assert "retrieval/value" in not_scored
    assert "something_else" in without_relation
    assert not any("has not scored" in note for note in hs.verify(run, scores=path).notes)


NEURONPEDIA = {
    "prev_token_score": "positional/offset-1",
    "self_attention_score": "positional/offset-0",
    "induction_score": "induction/natural",
    "pattern_entropy": "entropy",
    "qk_distance": "mean_distance",
}


def compared(run, path) -> pd.DataFrame:
    """Ranks by metric against the relation of the same name."""
    ranks = hs.verify(run, scores=path).table
    is_own = ranks["metric"].map(NEURONPEDIA) == ranks["relation"]
    return ranks[is_own].set_index("metric")


def scatter(folder, run):
    """Neuronpedia's file: an object for each head."""
    ours = {metric: masses(run, relation) for metric, relation in NEURONPEDIA.items()}
    rows = [
        {"layer": layer, "head": head}
        | {metric: round(float(x[layer, head]) / 2, 4) for metric, x in ours.items()}
        | {"qk_distance_variance": 2.5}
        for layer, head in np.ndindex(LAYERS, HEADS)
    ]
    path = folder / "scatter_data.json"
    path.write_text(json.dumps(rows) + "\n")
    return path


def test_a_hybrid_s_layers_may_have_gaps(run, tmp_path):
    """Neuronpedia numbers the layers with softmax attention as the model does."""
    path = scatter(tmp_path, run)
    assert compared(run, path)["relation"].to_dict() == NEURONPEDIA
    rows = [row | {"layer": 4 * row["layer"] + 3} for row in json.loads(path.read_text())]
    path.write_text(json.dumps(rows))
    apart = {
        name: table.assign(layer=4 * table["layer"] + 3)
        for name, table in (("evidence", run.evidence), ("heads", run.heads))
    }
    ranks = compared(replace(run, **apart), path)
    assert ranks["spearman"].to_list() == pytest.approx([1] * 5)
    with pytest.raises(RunError, match=r"6.*8.*24 × 8"):
        hs.verify(run, scores=path)


def head_metrics(folder, run, more_layers=0):
    """Neuronpedia's file: layers × heads of each metric; zeros after a hybrid's layers."""
    metrics = {}
    for metric, relation in NEURONPEDIA.items():
        ours = 0.1 + masses(run, relation) / 2
        metrics[metric] = [*ours.tolist(), *np.zeros((more_layers, HEADS)).tolist()]
    config = {
        "model_name": MODEL,
        "dataset_name": "some/text",
        "n_sequences": 4096,
        "seq_len": 512,
        "dtype": "bfloat16",
        "revision": None,
    }
    counts = {"attention_positions": [9.0] * LAYERS}
    path = folder / "metrics.json"
    path.write_text(json.dumps({"config": config, "metrics": metrics | {"counts": counts}}))
    return path


@pytest.mark.parametrize("more_layers", [0, 18])
def test_head_metrics_are_read_as_layers_by_heads(run, tmp_path, more_layers):
    """A hybrid's file counts the layers that have attention, and its run numbers them all."""
    step = 1 + more_layers // LAYERS
    hybrid = {
        name: table.assign(layer=step * table["layer"] + step - 1)
        for name, table in (("evidence", run.evidence), ("heads", run.heads))
    }
    path = head_metrics(tmp_path, run, more_layers)
    ranks = compared(replace(run, **hybrid), path)
    assert ranks["relation"].to_dict() == NEURONPEDIA
    assert ranks["spearman"].to_list() == pytest.approx([1] * 5)
    layer, head = np.unravel_index(masses(run, "entropy").argmax(), (LAYERS, HEADS))
    assert ranks.loc["pattern_entropy", "best"] == f"L{step * layer + step - 1}H{head}"
    for stated in ("bfloat16", "4,096", "512", "some/text"):
        assert ranks["source"].str.contains(stated, regex=False).all()


def test_head_metrics_of_another_model_are_refused(run, tmp_path):
    with pytest.raises(RunError, match=MODEL):
        hs.verify(run, scores=head_metrics(tmp_path, run), model="google/gemma-3-270m")


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("gemma-3-270m-q4_k_m.gguf", "google/gemma-3-270m"),
        ("gemma-3-270m.gguf", "google/gemma-3-270m"),
        ("gemma-3-270m-it.Q8_0.gguf", "google/gemma-3-270m-it"),
        ("google/gemma-3-270m", "google/gemma-3-270m"),
        ("openai-community/gpt2", "gpt2"),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
    ],
)
def test_a_model_is_found_under_its_usual_names(model, published):
    names = ["google/gemma-3-270m", "google/gemma-3-270m-it", "gpt2"]
    names += ["meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3-8B"]
    assert published_name(model, names) == published


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.csv", "model,value\na,1\n"),
        ("s.csv", "model,revision,metric,layer,head,value\na,main,m,0,0,high\n"),
        *(("s.json", text) for text in ("{}", "[1, 2]", "nonsense", "[" * 10**5, '[{"layer": 0}]')),
        *(("s.json", text) for text in ("3", "[]", '[{"head": 0, "entropy": 1}]', "[{}, []]")),
        ("s.json", '{"config": [], "metrics": []}'),
        ("s.json", '{"config": [1], "metrics": {"entropy": [[1, 2]]}}'),
        ("s.json", '{"metrics": {}}'),
        ("s.json", '{"metrics": {"entropy": [1, 2]}}'),
        ("s.json", '{"metrics": {"entropy": [[1, 2]], "entropy": [[3, 4]]}}'),
        ("s.json", '{"config": {"model_name": "m"}, "metrics": {"entropy": [[1, 2], [3]]}}'),
    ],
)
def test_a_file_without_scores_is_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(RunError, match=name) as refused:
        read_scores(path)
    # an error that is the key alone says nothing
    assert not re.search(r": '\w+'$", str(refused.value))


CELLS = "m,main,entropy,0,0,1".split(",")


@pytest.mark.parametrize(
    ("column", "text"),
    [(5, "high"), (5, "inf"), (3, "-1"), (3, "1.5"), (3, ""), (4, "²"), (4, "one")],
)
def test_a_row_without_a_score_is_named(tmp_path, column, text):
    path = tmp_path / "s.csv"
    rows = [CELLS, [*CELLS[:column], text, *CELLS[column + 1 :]], [*CELLS[:4], "1", "2"], CELLS]
    lines = [",".join(FILE_COLUMNS), *map(",".join, rows)]
    path.write_text("\n".join(lines))
    # the last row repeats the first one
    with pytest.raises(RunError, match=r"2 of 4 rows.*row 3: .*row 5: "):
        read_scores(path)


def test_a_missing_score_has_no_row(tmp_path):
    path = tmp_path / "s.csv"
    rows = [[*CELLS[:4], str(head), value] for head, value in enumerate(("1", "", "NaN", "2"))]
    path.write_text("\n".join([",".join(FILE_COLUMNS), *map(",".join, rows)]))
    table = read_scores(path)
    assert table[["head", "value"]].to_numpy().tolist() == [[0, 1], [3, 2]]


DESCRIBING = ["dataset_name", "n_sequences", "seq_len", "dtype", "revision", "model_name"]


@pytest.mark.parametrize("without", [*([key] for key in DESCRIBING), DESCRIBING])
def test_what_only_describes_the_scores_is_optional(run, tmp_path, without):
    path = head_metrics(tmp_path, run)
    whole = read_scores(path, MODEL).drop(columns="source")
    content = json.loads(path.read_text())
    for key in without:
        del content["config"][key]
    if not content["config"]:
        del content["config"]
    path.write_text(json.dumps(content))
    assert read_scores(path, MODEL).drop(columns="source").equals(whole)
    assert len(hs.verify(run, scores=path).table)
