"""A type on request: measured by its name alone, and known to everything that reads a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import headscope as hs
from headscope import relations
from headscope.relations import head_types, relations_of, retrieval
from headscope.relations.effects import effects_of
from headscope.relations.head_type import HeadType
from tests.helpers.report import data_of

ASKED = HeadType(
    name="asked",
    letter="a",
    relations=(replace(retrieval.RELATIONS[0], type="asked"),),
    on_request=True,
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(relations._registered, "asked", ASKED)


def test_a_default_run_reads_no_stimulus_of_types_on_request(tmp_path):
    default = hs.classify("mini", max_tokens=600, twin=False, examples=False)
    of_default = {stimulus for relation in relations_of() for stimulus in relation.stimuli}
    of_all = {stimulus for relation in relations_of(["all"]) for stimulus in relation.stimuli}
    assert of_all - of_default >= {"pairs", "facts", "words"}
    read = {
        name for name, tokens in default.info["provenance"]["stimulus_tokens"].items() if tokens
    }
    assert {"text", "repeat"} <= read
    assert not read & (of_all - of_default)
    every = hs.classify("mini", types="all", max_tokens=600, twin=False, out=tmp_path / "all")
    assert {"pairs", "facts", "words"} <= every.info["provenance"]["stimulus_tokens"].keys()
    assert {"semantic", "retrieval", "concept-induction"} <= {*every.evidence["type"]}
    assert "--types all" in every.info["command"]


def test_default_effects_leave_out_types_on_request():
    def types(asked: list[str] | None) -> set[str]:
        return {effect.type for effect in effects_of(asked, relations_of(asked))}

    assert types(["all"]) - types(None) == {"retrieval"}
    assert types(["retrieval"]) == {"retrieval"}


def test_all_names_every_type_wherever_types_are_chosen():
    pattern = np.tril(np.ones((1, 1, 9, 9))) / np.arange(1, 10)[:, None]
    run = hs.score_patterns([pattern], None, [["<s>", *"abcdabcd"]], types="all")
    assert {relation.type for relation in relations_of(["all"])} == {*head_types()}
    assert {*run.info["types"]} == {*head_types()}


def test_a_run_with_one_repeats_it_in_its_command(tmp_path):
    run = hs.classify(
        "mini", types=["sink", "asked"], max_tokens=600, twin=False, out=tmp_path / "run"
    )
    assert "--types sink,asked" in run.info["command"]
    assert set(run.evidence["type"]) == {"sink", "asked"}
    assert "asked" in data_of(tmp_path / "run" / "report.html")
    again = hs.load(tmp_path / "run")
    assert again.rules["asked/value"] == ASKED.relations[0].rule
