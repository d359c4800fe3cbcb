"""Matches of heads: copies are found, heads of unrelated models are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.resolve import the_run
from headscope.statistics.result import Result
from headscope.studies.match import match_heads
from headscope.views.study_result import StudyResult
from tests.helpers.models import save_model


@pytest.fixture(scope="module")
def mini() -> Result:
    return the_run("atlas:mini")


def matches(result: StudyResult) -> dict[tuple[int, int], tuple[int, int]]:
    table = result.table[["layer", "head", "match_layer", "match_head"]]
    return {row[:2]: row[2:] for row in table.itertuples(index=False, name=None)}


def test_a_model_with_two_equal_heads_matches_every_head_to_itself(mini):
    others = mini.evidence.query("layer != 2 or head != 3")
    copy = mini.evidence.query("layer == 2 and head == 0").assign(head=3)
    equal = replace(mini, evidence=pd.concat([others, copy]))
    found = match_heads(equal, equal)
    assert all(head == match for head, match in matches(found).items())
    np.testing.assert_allclose(found.table["similarity"], 1)
    assert (found.table["q_value"] < 0.05).all()
    assert (found.table["tags"] == found.table["match_tags"]).all()


def test_heads_are_found_where_they_were_moved(mini):
    layers, heads = mini.heads["layer"].max() + 1, mini.heads["head"].max() + 1
    generator = np.random.default_rng(3)
    place = np.stack([generator.permutation(heads) for _ in range(layers)])
    moved = replace(
        mini,
        **{
            name: table.assign(head=place[table["layer"], table["head"]])
            for name, table in (("heads", mini.heads), ("evidence", mini.evidence))
        },
    )
    found = match_heads(mini, moved)
    assert all(match == (at[0], place[at]) for at, match in matches(found).items())
    assert (found.table["q_value"] < 0.05).all()


def test_random_models_match_nothing(tokenizer, tmp_path):
    runs = [
        hs.classify(save_model(layout, tokenizer, tmp_path / layout, layers=8), max_tokens=3000)
        for layout in ("gpt2", "llama")
    ]
    assert match_heads(*runs).values["matched"] == 0


def test_runs_without_common_relations_are_refused(mini):
    evidence = mini.evidence[mini.evidence["type"] == "sink"]
    with pytest.raises(RunError, match="relations"):
        match_heads(mini, replace(mini, evidence=evidence))


def test_the_figure_marks_the_matches_in_the_order_of_the_heads(mini):
    axes, _ = match_heads(mini, mini).figure().axes
    assert axes.get_xticklabels()[0].get_text() == "L0H0"
    assert len(axes.lines) == len(mini.heads)
    assert [list(line.get_xdata()) for line in axes.lines][:2] == [[0], [1]]
