"""Published scores that ship: known heads, and a relation for each ranked metric."""

from __future__ import annotations

import pandas as pd
import pytest

from headscope.corpus.shipped import data_folder
from headscope.relations import relations_of
from headscope.studies.verify import SHIPPED, published_metrics, read_scores

RELATIONS = published_metrics()["relation"].to_dict()


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return read_scores(data_folder() / SHIPPED)


def test_the_induction_heads_of_gpt2_are_those_of_transformerlens_notebook(shipped):
    rows = shipped[shipped["metric"] == "induction_random_repeat_len100"]
    strong = rows[rows["value"] >= 0.8][["layer", "head"]]
    assert set(map(tuple, strong.to_numpy())) == {(5, 1), (5, 5), (6, 9), (7, 2), (7, 10)}


def test_ranked_metrics_have_a_score_for_each_head_and_a_known_relation(shipped):
    known = {relation.id for relation in relations_of(["all"])} | {"entropy", "mean_distance"}
    assert set(RELATIONS.values()) <= known
    ranked = shipped[shipped["metric"].isin(RELATIONS)]
    for _, table in ranked.groupby(["model", "revision", "metric"]):
        count = (table["layer"].max() + 1) * (table["head"].max() + 1)
        assert len(table.drop_duplicates(["layer", "head"])) == count
