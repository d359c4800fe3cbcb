"""Pages of models say what the atlases say."""

from __future__ import annotations

import pytest

import headscope as hs
from docs.generate import between_marks
from docs.model_pages import (
    PAGES,
    absent,
    clark,
    index_text,
    overview,
    with_blocks,
)
from headscope.runs.atlas import atlas_names


@pytest.fixture(scope="module")
def minilm() -> hs.Run:
    return hs.load("atlas:minilm")


@pytest.mark.parametrize("name", atlas_names())
def test_generation_changes_nothing(name):
    text = (PAGES / f"{name}.md").read_text("utf-8")
    assert with_blocks(text, hs.load(f"atlas:{name}"), file=name) == text


def test_the_table_of_all_pages_is_theirs(minilm):
    assert between_marks(index_text(), "overview", overview(), file="") == index_text()
    held = minilm.evidence[minilm.evidence["tagged"].astype(bool)]
    held = held[held["type"] == "syntactic"]
    told = held["confirmed"].astype(float)
    (line,) = (row for row in overview().splitlines() if row.startswith("| syntactic |"))
    assert f" | {len(held)}, {(told == 1).sum()} of {told.notna().sum()} | " in line


def test_what_no_head_does_was_decided_and_no_head_holds_it_or_nearly_does(minilm):
    listed = {}
    for line in absent(minilm).splitlines():
        if line.startswith("- **"):
            kind, _, names = line[4:].partition("**: ")
            listed.setdefault(kind, set()).update(name.strip("`") for name in names.split(", "))
    assert listed["retrieval"] == {"value"}
    assert "obj:dep>head" not in listed["syntactic"]  # nearly: narrowly refused
    for row in minilm.evidence.itertuples():
        if row.relation in listed.get(row.type, ()):
            assert (row.verdict, row.tagged) == ("no", False)
            assert row.n >= 50


def test_clark_s_numbers_stand_beside_the_head_that_is_right_most_often(minilm):
    line = next(line for line in clark(minilm).splitlines() if line.startswith("| dobj |"))
    published, offset, *_ = line.strip("| ").split(" | ")[1:]
    assert (published, offset) == ("8-10: 0.868", "0.400")  # table 1 of the paper
    evidence = minilm.evidence[minilm.evidence["relation"] == "obj:dep>head"]
    assert f": {evidence['hit_rate'].max():.2f} |" in line
