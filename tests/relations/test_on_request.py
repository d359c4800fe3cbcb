"""A type on request: measured by its name alone, and known to everything that reads a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headscope as hs
from headscope import relations
from headscope.relations import relations_of, retrieval
from headscope.relations.types import HeadType

ASKED = HeadType(
    name="asked",
    letter="a",
    relations=(replace(retrieval.RELATIONS[0], type="asked"),),
    on_request=True,
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(relations._registered, "asked", ASKED)


def test_a_default_run_does_not_measure_it():
    assert "asked" not in {relation.type for relation in relations_of()}


def test_it_is_measured_by_name_beside_others():
    assert {relation.type for relation in relations_of(["asked", "induction"])} == {
        "asked",
        "induction",
    }


def test_a_run_with_one_repeats_it_in_its_command(tmp_path):
    run = hs.classify(
        "mini", types=["sink", "asked"], max_tokens=600, twin=False, out=tmp_path / "run"
    )
    assert "--types sink,asked" in run.info["command"]
    assert set(run.evidence["type"]) == {"sink", "asked"}
    assert "asked" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    again = hs.load(tmp_path / "run")
    assert again.rules["asked/value"] == ASKED.relations[0].rule
