"""Published scores that ship: each has a source, and a relation or a reason why not."""

from __future__ import annotations

import pandas as pd
import pytest

from docs.generate import NO_COUNTERPART
from headscope.corpus.shipped import data_folder
from headscope.relations import relations_of
from headscope.studies.verify import SHIPPED, published_metrics, read_scores

RELATIONS = published_metrics()["relation"].to_dict()
KEYS = ["model", "revision", "metric"]


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return read_scores(data_folder() / SHIPPED)


def test_each_shipped_score_has_a_source(shipped):
    assert (data_folder() / SHIPPED).stat().st_size < 2_000_000
    assert (len(shipped), shipped["model"].nunique()) == (206_592, 61)
    sources = pd.read_csv(data_folder() / "published_models_sources.csv.xz")
    assert sources["source"].str.contains(r"^\S+/\S+ [0-9a-f]{7}:").all()
    stated = set(map(tuple, sources[KEYS].to_numpy()))
    assert set(map(tuple, shipped[KEYS].drop_duplicates().to_numpy())) == stated


def test_the_induction_heads_of_gpt2_are_those_of_transformerlens_notebook(shipped):
    rows = shipped[shipped["metric"] == "induction_random_repeat_len100"]
    strong = rows[rows["value"] >= 0.8][["layer", "head"]]
    assert set(map(tuple, strong.to_numpy())) == {(5, 1), (5, 5), (6, 9), (7, 2), (7, 10)}


def test_each_shipped_metric_is_ranked_or_has_a_reason_why_not(shipped):
    for metric in shipped["metric"].unique():
        reasons = [why for begin, why in NO_COUNTERPART.items() if metric.startswith(begin)]
        assert (metric in RELATIONS) + len(reasons) == 1, metric
    for begin in NO_COUNTERPART:
        assert shipped["metric"].str.startswith(begin).any(), begin
    ranked = shipped[shipped["metric"].isin(RELATIONS)]
    for _, table in ranked.groupby(KEYS):
        shape = table["layer"].max() + 1, table["head"].max() + 1
        assert len(table.drop_duplicates(["layer", "head"])) == shape[0] * shape[1]


def test_each_relation_that_is_ranked_against_exists():
    known = {relation.id for relation in relations_of(["all"])} | {"entropy", "mean_distance"}
    assert set(RELATIONS.values()) <= known
