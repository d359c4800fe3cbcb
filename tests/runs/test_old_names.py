"""A run folder outlives the names that headscope gives to what is in it."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from headscope.errors import RunError
from headscope.runs.run_json import read_record
from headscope.runs.tables import read_evidence


def test_evidence_of_an_older_headscope_has_its_tags_as_verdicts(old):
    path = old / "evidence.csv"
    table = pd.read_csv(path)
    table.loc[::7, "tagged"] = True  # its model earned none
    table.to_csv(path, index=False)
    evidence = read_evidence(path)
    assert evidence["verdict"].value_counts().to_dict().keys() == {"tagged", "no"}
    assert evidence["tagged"].equals(evidence["verdict"] == "tagged")
    assert evidence["contested_n"].isna().all()


def test_a_condition_of_an_older_headscope_is_read_under_its_new_name(old):
    path = old / "run.json"
    facts = json.loads(path.read_text())
    name = next(iter(facts["relations"]))
    facts["relations"][name]["beat_guess_by"] = 0.25
    path.write_text(json.dumps(facts))
    assert read_record(path)[1][name].beat_baseline_by == 0.25


def test_a_condition_that_no_headscope_ever_wrote_is_refused(old):
    path = old / "run.json"
    facts = json.loads(path.read_text())
    next(iter(facts["relations"].values()))["beat_hunch_by"] = 0.25
    path.write_text(json.dumps(facts))
    with pytest.raises(RunError, match="'beat_hunch_by', which no rule has"):
        read_record(path)
