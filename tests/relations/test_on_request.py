"""Types on request: measured by their names or by `all`."""

from __future__ import annotations

import headscope as hs
from headscope.relations import relations_of
from headscope.relations.effects import effects_of


def test_types_on_request_are_read_by_name_or_by_all(mini_run):
    default = hs.load(mini_run)
    every = hs.classify("mini", types="all", max_tokens=600, examples=False)
    stimuli = [
        {stimulus for relation in relations_of(types) for stimulus in relation.stimuli}
        for types in (None, ["all"])
    ]
    read = {name for name, count in default.info["provenance"]["stimulus_tokens"].items() if count}
    assert not read & (stimuli[1] - stimuli[0])
    assert {"pairs", "facts", "words"} <= every.info["provenance"]["stimulus_tokens"].keys()
    assert {"semantic", "retrieval", "concept-induction"} <= {*every.evidence["type"]}
    assert "--types all" in every.info["command"]


def test_default_effects_leave_out_types_on_request():
    def types(asked: list[str] | None) -> set[str]:
        return {effect.type for effect in effects_of(asked, relations_of(asked))}

    assert types(["all"]) - types(None) == {"retrieval"}
    assert types(["retrieval"]) == {"retrieval"}
