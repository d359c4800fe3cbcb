"""Published lists of heads that make words of words, beside what the weights say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.studies.validation.verify import verify

SHAPE = (6, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run of 6 layers × 8 heads, of which only the shape matters."""
    n = 12
    a = np.zeros((*SHAPE, n + 1, n + 1))
    a[..., 0] = 1
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(n)]] for i in range(9)]
    made = hs.score_patterns([a] * 9, None, tokens, name="pythia-12b")
    return made.save(tmp_path_factory.mktemp("lists") / "run")


@pytest.fixture(scope="module")
def run(folder) -> hs.Run:
    return hs.load(folder)


def related_file(path, values: np.ndarray, relation: str = "capital", sign: str = "raises"):
    layer, head = np.indices(values.shape)
    table = pd.DataFrame(
        {"layer": layer.ravel(), "head": head.ravel(), "but_itself": values.ravel()}
    )
    table.assign(relation=relation, sign=sign).to_csv(path, index=False)
    return path


def list_file(path, heads: list[tuple[int, int]], metric: str, others: str = ""):
    rows = [(*place, 0.9 - 0.05 * i, metric) for i, place in enumerate(heads)]
    rows += [(0, 0, 0.5, others)] if others else []
    table = pd.DataFrame(rows, columns=["layer", "head", "value", "metric"])
    table.assign(model="EleutherAI/pythia-12b", revision="main").to_csv(path, index=False)
    return path


CAPITALS = "maps_writes_country_to_capital_wikidata"


def test_a_list_is_compared_with_as_many_heads_of_the_relation_and_sign(folder, tmp_path, command):
    values = np.random.default_rng(0).random(SHAPE) / 2
    listed = [(1, 1), (2, 5), (3, 0), (4, 4), (5, 7), (5, 2)]
    for layer, head in listed[:5]:
        values[layer, head] += 0.5
    values[5, 2] = 0
    scores = list_file(tmp_path / "scores.csv", listed, CAPITALS, "maps_writes_name_copying")
    related = related_file(tmp_path / "related.csv", values)
    found = verify(folder, scores=scores, related=related)
    (row,) = found.ranks.to_dict("records")
    assert (row["metric"], row["relation"], row["quantity"]) == (
        CAPITALS, "related/capital", "raises",
    )  # fmt: skip
    assert (row["heads"], row["top"], row["shared"], row["best"]) == (48, 6, 5, "L1H1")
    assert row["shared_control"] < 2
    assert row["p_value"] < 0.01
    assert "own lists" in row["stimulus"]
    assert found.holds
    assert any("name_copying" in note and "not compared" in note for note in found.notes)
    out = tmp_path / "ranks.csv"
    code, said, err = command(
        "verify", folder, "--scores", scores, "--related", related, "--out", out
    )
    assert not code, err
    assert "5 of 6 the same" in " ".join(said.split())
    assert "other stimulus" in " ".join(said.split())
    assert pd.read_csv(out)["shared"].tolist() == [5]


def test_heads_that_only_lie_as_deep_are_not_the_same_ones(run, tmp_path):
    values = np.zeros(SHAPE)
    values[5, :4] = 0.9
    scores = list_file(tmp_path / "scores.csv", [(5, head) for head in range(4, 8)], CAPITALS)
    found = verify(run, scores=scores, related=related_file(tmp_path / "r.csv", values))
    assert found.ranks["shared"].item() == 0
    assert found.ranks["shared_control"].item() > 1
    assert not found.holds


def test_what_raises_is_not_compared_with_what_lowers(run, tmp_path):
    scores = list_file(tmp_path / "s.csv", [(5, 1)], CAPITALS.replace("writes", "suppresses"))
    found = verify(run, scores=scores, related=related_file(tmp_path / "r.csv", np.ones(SHAPE)))
    assert found.ranks.empty
    assert any("suppresses" in note and "not compared" in note for note in found.notes)


def test_without_the_table_it_is_said_how_to_make_one(run, tmp_path):
    scores = list_file(tmp_path / "scores.csv", [(5, 1)], CAPITALS)
    notes = verify(run, scores=scores).notes
    assert any("--related FILE" in note for note in notes)


def test_what_does_not_belong_together_is_refused(run, tmp_path):
    scores = list_file(tmp_path / "scores.csv", [(5, 1)], CAPITALS)
    related = related_file(tmp_path / "r.csv", np.ones(SHAPE))
    with pytest.raises(RunError, match="no file of scores came; add --scores FILE"):
        verify(run, related=related)
    with pytest.raises(RunError, match="no table of related words: it has no column layer, head"):
        verify(run, scores=scores, related=_text(tmp_path / "a.csv", "model\nx\n"))
    with pytest.raises(RunError, match="but_itself is no share"):
        verify(run, scores=scores, related=related_file(tmp_path / "b.csv", np.full(SHAPE, 2.0)))
    with pytest.raises(RunError, match="6 layers × 8 heads, and the table of related words has a"):
        verify(run, scores=scores, related=related_file(tmp_path / "c.csv", np.ones((6, 9))))
    with pytest.raises(RunError, match="has 40 heads for capital, and this run 48"):
        verify(run, scores=scores, related=related_file(tmp_path / "d.csv", np.ones((5, 8))))
    deep = list_file(tmp_path / "deep.csv", [(6, 1)], CAPITALS)
    with pytest.raises(RunError, match="has a head L6H1"):
        verify(run, scores=deep, related=related)


def _text(path, text: str):
    path.write_text(text)
    return path
