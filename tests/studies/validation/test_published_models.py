"""Published scores of 60 models that ship: each has a source and a place in the table of definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from docs.generate import NO_COUNTERPART
from headscope.corpus.shipped import data_folder
from headscope.studies.validation.published_scores import (
    PUBLISHED,
    SHIPPED,
    SOURCES,
    masses_of,
    shipped_name,
    shipped_scores,
)
from headscope.studies.validation.published_stimulus import MATRICES
from headscope.studies.validation.verify import verify

KEYS = ["model", "revision", "metric"]


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    return shipped_scores()


def test_they_are_small_and_each_has_a_source(scores):
    assert (data_folder() / SHIPPED).stat().st_size < 2_000_000
    assert (len(scores), scores["model"].nunique()) == (205_800, 60)
    sources = pd.read_csv(data_folder() / SOURCES)
    assert sources["source"].str.contains(r"^\S+/\S+ [0-9a-f]{7}:").all()
    stated = set(map(tuple, sources[KEYS].to_numpy()))
    assert set(map(tuple, scores[KEYS].drop_duplicates().to_numpy())) == stated


def test_they_are_what_was_published(scores):
    """LLMVis' own page: GPT-2's previous-token head, its induction head, its duplicate head."""
    gpt2 = scores[scores["model"] == "gpt2"].set_index("metric")
    for metric, layer, head, value in (
        ("llmvis_previous_token", 4, 11, 0.970),
        ("llmvis_induction", 5, 1, 0.441),
        ("llmvis_duplicate_token", 0, 1, 0.418),
    ):
        best = gpt2.loc[metric].sort_values("value").iloc[-1]
        assert (best["layer"], best["head"]) == (layer, head)
        assert best["value"] == pytest.approx(value, abs=6e-4)


def test_every_metric_is_ranked_or_has_a_reason_why_not_and_not_both(scores):
    for metric in scores["metric"].unique():
        reasons = [why for begin, why in NO_COUNTERPART.items() if metric.startswith(begin)]
        assert (metric in PUBLISHED) + len(reasons) == 1, metric
    assert set(PUBLISHED).isdisjoint(MATRICES)
    for begin in NO_COUNTERPART:
        assert scores["metric"].str.startswith(begin).any(), begin


def test_what_is_ranked_has_a_value_for_every_head(scores):
    ranked = scores[scores["metric"].isin(PUBLISHED)]
    for _, table in ranked.groupby(KEYS):
        shape = table["layer"].max() + 1, table["head"].max() + 1
        assert len(table) == shape[0] * shape[1]
        assert not table.duplicated(["layer", "head"]).any()


def test_every_relation_that_is_held_against_is_there():
    from headscope.relations import relations_of

    known = {relation.id for relation in relations_of(["all"])} | {"entropy", "mean_distance"}
    assert {score.relation for score in PUBLISHED.values()} <= known


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        ("gpt2", "gpt2"),
        ("openai-community/gpt2", "gpt2"),
        ("EleutherAI/pythia-160m", "EleutherAI/pythia-160m"),
        ("pythia-160m", "EleutherAI/pythia-160m"),
        ("mini", None),
        ("", None),
    ],
)
def test_a_model_is_found_by_the_hubs_name(name, shipped):
    assert shipped_name(name) == shipped


@pytest.fixture(scope="module")
def run(scores) -> hs.Run:
    """A run of GPT-2's shape whose previous-token masses are the published ones, and no others."""
    with np.load(data_folder() / "gpt2_small_patterns" / "patterns.npz") as arrays:
        patterns, tokens = arrays["fox"].astype(np.float32), arrays["fox_tokens"].tolist()
    run = hs.score_patterns(patterns, None, tokens, name="gpt2")
    evidence = run.evidence.copy()
    rows = (evidence["type"] + "/" + evidence["relation"]) == "positional/offset-1"
    is_metric = (scores["model"] == "gpt2") & (scores["metric"] == "llmvis_previous_token")
    published = scores[is_metric].set_index(["layer", "head"])["value"]
    places = list(zip(evidence.loc[rows, "layer"], evidence.loc[rows, "head"], strict=True))
    evidence.loc[rows, "mass"] = published.loc[places].to_numpy() / 2
    return replace(run, evidence=evidence)


def test_verify_ranks_a_run_by_the_shipped_scores_without_a_file(run):
    found = verify(run, measure=False)
    ranks = found.ranks.set_index("metric")
    assert ranks.loc["llmvis_previous_token", "spearman"] == pytest.approx(1)
    assert ranks.loc["llmvis_previous_token", "shared"] == 10
    assert ranks.loc["llmvis_previous_token", "best"] == "L4H11"
    first = masses_of(run, "sink/first-token").ravel()
    is_metric = (shipped_scores()["model"] == "gpt2") & (
        shipped_scores()["metric"] == "llmvis_positional"
    )
    theirs = shipped_scores()[is_metric].sort_values(["layer", "head"])["value"]
    expected = pd.Series(first).rank().corr(pd.Series(theirs.to_numpy()).rank())
    assert ranks.loc["llmvis_positional", "spearman"] == pytest.approx(expected)
    assert ranks.loc["llmvis_positional", "spearman"] < 0.99
    assert found.model == "gpt2-small"


def test_verify_of_a_model_without_published_scores_is_as_before(run):
    other = replace(run, info=run.info | {"model": run.info["model"] | {"name": "none"}})
    with pytest.raises(hs.HeadscopeError, match="no published model named 'none'; choose from"):
        verify(other, measure=False)
