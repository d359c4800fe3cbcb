"""Types on request: asked by their names alone, and known to everything that reads a run."""

from __future__ import annotations

import headscope as hs
from headscope.relations import head_types, relations_of
from headscope.stimuli import STIMULI

ON_REQUEST = {name for name, head_type in head_types().items() if head_type.on_request}


def test_a_default_run_asks_none_and_reads_none_of_their_texts():
    assert {"filter", "binding"} <= ON_REQUEST
    default = relations_of()
    assert not {relation.type for relation in default} & ON_REQUEST
    texts = {name for relation in default for name in relation.stimuli}
    on_request = {name for r in relations_of([*ON_REQUEST]) for name in r.stimuli}
    assert not texts & on_request
    # pictures of them would change what a default run keeps
    assert not any(STIMULI[name].picture for name in on_request)


def test_they_are_asked_by_name_beside_others():
    assert {relation.type for relation in relations_of(["binding", "induction"])} == {
        "binding",
        "induction",
    }


def test_a_run_that_was_asked_for_one_says_so_in_the_command_that_repeats_it(tmp_path):
    run = hs.classify(
        "mini", types=["sink", "binding"], max_tokens=600, twin=False, out=tmp_path / "run"
    )
    assert "--types sink,binding" in run.info["command"]
    assert set(run.evidence["type"]) == {"sink", "binding"}
    assert "binding" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    again = hs.load(tmp_path / "run")
    assert again.rules["binding/held"] == relations_of(["binding"])[0].rule
