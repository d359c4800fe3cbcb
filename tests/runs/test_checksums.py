"""What `run.json` vouches for: the causes and itself too."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from headscope.errors import RunError
from headscope.run import load
from headscope.runs.folder import CAUSES, REPORT, RUN
from headscope.runs.store import save_study_table
from headscope.runs.tables import CAUSE_TABLE
from tests.fuzz.folders import make_run, sign_record


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    return shutil.copytree(sound, tmp_path / "run")


def test_an_edited_verdict_is_refused(folder):
    path = folder / CAUSES
    path.write_text(path.read_text().replace("-2.25", "-2.5"))
    with pytest.raises(RunError, match=r"causal\.csv: this file is not the one that was written"):
        load(folder)


def test_an_edited_run_json_is_refused_and_its_spaces_do_not_count(folder):
    path = folder / RUN
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts, sort_keys=True, indent=7))
    load(folder)
    facts["relations"]["induction/repeat"]["floor"] = 0.01
    path.write_text(json.dumps(facts))
    with pytest.raises(RunError, match=r"run\.json: this file is not the one that was written"):
        load(folder)
    sign_record(path)  # its sha256 as the README says it is made
    assert load(folder).rules["induction/repeat"].floor == 0.01


def test_causes_join_a_run_with_their_checksum_and_nothing_else_changes(folder):
    (folder / "mine.txt").write_text("mine")
    run = load(folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    changed = replace(run, causes=run.causes.assign(moved=0.25))
    with pytest.raises(RunError, match=r"causal\.csv exists already: .* add --overwrite"):
        save_study_table(changed, folder, CAUSE_TABLE, report=changed.report)
    assert {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()} == before
    save_study_table(changed, folder, CAUSE_TABLE, report=changed.report, overwrite=True)
    after = {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}
    assert {name for name in after if after[name] != before[name]} == {CAUSES, REPORT, RUN}
    assert load(folder, with_tally=True).causes["moved"].tolist() == [0.25, 0.25]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["run"]
