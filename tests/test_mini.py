"""`mini`, the model that ships: what its heads must have learned."""

from __future__ import annotations

import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import mini_folder


@pytest.fixture(scope="module")
def run(mini_run):
    return hs.load(mini_run)


def best(run, name: str) -> pd.Series:
    rows = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == name]
    return rows.sort_values("mass").iloc[-1]


LEAST = {
    "positional/offset-1-random": 0.8,
    "positional/offset-1": 0.5,
    "duplicate-token/repeat": 0.6,
}
"""Attention of the best head of relations that must have one."""


@pytest.mark.parametrize("name", LEAST)
def test_the_best_head_of_a_relation_is_tagged(run, name):
    assert best(run, name)["mass"] >= LEAST[name]
    assert best(run, name)["tagged"]


def test_it_has_learned_at_least_two_induction_heads(run):
    rows = run.evidence[run.evidence["relation"] == "repeat"]
    assert ((rows["mass"] >= 0.6) & rows["tagged"]).sum() >= 2


def test_it_has_learned_to_look_at_the_first_token_or_at_punctuation(run):
    names = ("sink/first-token", "delimiter/punctuation", "delimiter/sentence-end")
    assert max(best(run, name)["mass"] for name in names) >= 0.8


def test_it_has_learned_what_words_are_made_of_and_where_they_stood_before(run):
    """Attention that resembled syntax was on the nearest word of a class."""
    tagged = run.evidence[(run.evidence["type"] == "lexical") & run.evidence["tagged"]]
    assert len(tagged[["layer", "head"]].drop_duplicates()) >= 3
    assert {"in-word", "duplicate"} <= set(tagged["relation"])


def test_the_emergence_of_its_heads_is_kept(run):
    table = pd.read_csv(mini_folder() / "emergence.csv")
    steps = table.groupby("step")[["previous", "induction"]].max()
    assert 6 <= len(steps) <= 10
    assert len(table) == len(steps) * len(run.heads)
    assert steps["induction"].iloc[0] < 0.2 < 0.6 < steps["induction"].iloc[-1]


def test_every_published_file_of_it_is_small_and_no_pickle():
    files = list(mini_folder().iterdir())
    assert sum(path.stat().st_size for path in files) < 16e6
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".pkl")]
