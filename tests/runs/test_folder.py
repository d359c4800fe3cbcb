"""A run folder: complete or absent, for one process at a time, and read back as it was written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import RunError, WriteError
from headscope.runs import folder as run_folder
from headscope.runs.contents import CHECKED, INDEX, MEANS, PATTERNS, RECORD, REPORT, SUMS
from headscope.runs.folder import NEW, OLD, PACKED, RunFolder
from headscope.runs.patterns import means_file
from headscope.runs.tables import CAUSE_TABLE
from tests.helpers.disks import disk
from tests.helpers.run_folders import content, make_run, sign_record, signed, stored
from tests.helpers.shell import headscope
from tests.limits import no_hang

READ_BACK = [PACKED.get(name, name) for name in CHECKED]
OPTIONS = {"types": ["induction"], "max_tokens": 500}


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture
def folder(sound, tmp_path) -> Path:
    """A run with all files."""
    return shutil.copytree(sound, tmp_path / "runs" / "run")


def edit(path: Path, change: Callable[[dict], object]) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))
    sign_record(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_run_json_states_the_checksum_of_every_file_that_is_read_back(folder):
    stated = json.loads((folder / RECORD).read_text())["files"]
    assert set(stated) == set(CHECKED)
    for file, sha256 in stated.items():
        assert hashlib.sha256(stored(folder, file)).hexdigest() == sha256


@pytest.mark.parametrize("name", READ_BACK)
@pytest.mark.parametrize("how", ["edited", "cut", "other", "gone"])
def test_each_file_that_is_not_the_one_that_was_written_is_named(folder, name, how):
    path, raw = folder / name, (folder / name).read_bytes()
    if how == "gone":
        path.unlink()
    else:
        other = (folder / REPORT).read_bytes()
        path.write_bytes(
            {"edited": raw[:-1] + bytes([raw[-1] ^ 1]), "cut": raw[:-1], "other": other}[how]
        )
    with pytest.raises(RunError, match=str(path)):
        hs.load(folder, with_tally=True)


def test_an_edited_run_json_is_refused_and_its_spaces_do_not_count(folder):
    path = folder / RECORD
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts, sort_keys=True, indent=7))
    hs.load(folder)
    facts["relations"]["induction/repeat"]["threshold"] = 0.01
    path.write_text(json.dumps(facts))
    refused = headscope("heads", folder)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"headscope: {path}: ")
    sign_record(path)  # its sha256 as the docs say it is made
    assert hs.load(folder).thresholds["induction/repeat"].threshold == 0.01


def test_files_that_run_json_does_not_state_are_not_read(folder):
    (folder / REPORT).write_text("mine")
    for name in (SUMS, PATTERNS, INDEX):
        edit(folder / RECORD, lambda facts, name=name: facts["files"].pop(name))
    edit(folder / RECORD, lambda facts: facts["files"].update({"../outside": "0" * 64}))
    run = hs.load(folder, with_tally=True)
    assert len(run.examples) == 0
    assert run.tally is None


def test_a_folder_of_an_earlier_format_is_refused_in_one_sentence(folder):
    edit(folder / RECORD, lambda facts: facts.update(format_version=2))
    with pytest.raises(RunError, match=re.escape(str(folder))):
        hs.load(folder)


@pytest.mark.parametrize("name", [RECORD, *READ_BACK, "patterns"])
def test_links_that_lead_out_of_the_folder_are_refused(folder, tmp_path, name):
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match=str(tmp_path / "outside")):
        hs.load(folder, with_tally=True)
    (folder / name).unlink()
    (folder / name).symlink_to(folder / name)
    with no_hang(), pytest.raises(RunError):
        hs.load(folder, with_tally=True)


def test_the_report_is_not_written_through_a_link_out_of_the_folder(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (folder / REPORT).unlink()
    (folder / REPORT).symlink_to(precious)
    assert "leads out of the run folder" in headscope("report", folder).stderr
    assert precious.read_text() == "precious"


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.mark), "w")


@pytest.mark.parametrize("name", READ_BACK)
def test_a_pickle_in_a_run_folder_is_never_loaded(folder, tmp_path, name):
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Bomb(mark))).close()
    mark.unlink()  # the bomb works
    (folder / name).write_bytes(pickle.dumps(Bomb(mark)))
    signed(folder)
    with pytest.raises(RunError):
        list(hs.load(folder, with_tally=True).examples)
    assert not mark.exists()


def header(**tensors: dict) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff" * 8,
        (10**18).to_bytes(8, "little") + b"{}",
        header(target={"dtype": "F64", "shape": [10**9, 10**9, 10**9], "data_offsets": [0, 0]}),
        header(target={"dtype": "F64", "shape": [0, 10**18], "data_offsets": [0, 0]}),
        header(target={"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}) + b"12345678",
        header(),
    ],
)
@pytest.mark.parametrize("name", [SUMS, PATTERNS])
def test_sums_and_patterns_of_another_kind_are_refused_even_when_signed(folder, name, raw):
    (folder / name).write_bytes(raw)
    signed(folder)
    with no_hang(), pytest.raises(RunError, match=name):
        list(hs.load(folder, with_tally=True).examples)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**6, "recursion"),
        ("9" * 10**6, "digits"),
        ("null", "NoneType"),
        ('{"format_version": 3, "provenance": {}, "relations": []}', "required"),
    ],
)
def test_a_run_json_that_is_none_is_refused_in_few_words(folder, text, message):
    (folder / RECORD).write_text(text)
    with no_hang(), pytest.raises(RunError, match=rf"run\.json:.*{message}") as error:
        hs.load(folder)
    assert len(str(error.value)) < 500 + len(str(folder))


def test_the_table_of_a_study_joins_a_run_and_nothing_else_changes(folder):
    (folder / "mine.txt").write_text("mine")
    run = hs.load(folder, with_tally=True)
    before = content(folder)
    with pytest.raises(WriteError, match=r"causal\.csv.*--overwrite"):
        RunFolder(folder).check_table(CAUSE_TABLE, overwrite=False)
    with pytest.raises(RunError, match="atlas:mini"):
        RunFolder("atlas:mini").check_table(CAUSE_TABLE, overwrite=False)
    with pytest.raises(RunError, match="load"):
        hs.load(folder).save(folder, overwrite=True)
    changed = replace(run, causes=run.causes.assign(moved=0.25))
    changed.save(folder, overwrite=True)
    after = content(folder)
    different = {name for name in after if after[name] != before[name]}
    assert different == {CAUSE_TABLE.file, REPORT, RECORD}
    assert hs.load(folder).causes["moved"].tolist() == [0.25, 0.25]
    assert names(folder.parent) == ["run"]


def test_work_that_fails_takes_back_the_folder_that_it_made_and_no_other(tmp_path):
    (tmp_path / "mine").mkdir()
    for parent in ("made", "mine"):
        with pytest.raises(RunError, match="cut"), RunFolder(tmp_path / parent / "run").locked():
            raise RunError("cut")
    assert names(tmp_path) == ["mine"]


def test_a_second_process_is_refused_until_the_first_ends(gpt2_folder, tmp_path):
    out = tmp_path / "run"
    code = (
        "import sys, time; from headscope.runs.folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).locked(): print('there', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "there\n"
        second = headscope("classify", gpt2_folder, "--types", "induction", "--out", out, "-q")
        assert second.returncode == 2
        assert second.stderr.startswith(f"headscope: {out}: ")
        assert second.stderr.count("\n") == 1
        with RunFolder(tmp_path / "other").locked():  # another folder is free
            pass
        first.kill()
    assert names(tmp_path) == [".run.partial"]
    with RunFolder(out).locked():
        pass
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_put_right(folder):
    (folder / "mine.txt").write_text("mine")
    before, work = content(folder), folder.with_name(".run.partial")
    # killed between moving the old run away and the new one into place
    work.mkdir()
    folder.rename(work / OLD)
    (work / NEW).mkdir()
    (work / ".headscope-0a1b2c.new").write_bytes(b"half of a state")
    with RunFolder(folder).locked():
        assert content(folder) == before
        assert names(work) == ["lock"]
    # killed before the user's files were moved back and the old run was removed
    work.mkdir()
    shutil.copytree(folder, work / OLD)
    (folder / "mine.txt").unlink()
    with RunFolder(folder).locked():
        assert names(work) == ["lock"]
    assert content(folder) == before
    assert names(folder.parent) == ["run"]


def test_a_read_only_folder_is_named_and_left_as_it_is(gpt2_folder, folder, tmp_path):
    with disk(tmp_path / "fixed", "size=64m"):
        out = shutil.copytree(folder, tmp_path / "fixed" / "run")
        before = content(out)
        subprocess.run(["mount", "-o", "remount,ro", str(out.parent)], check=True)
        for wanted in (out, out.with_name("new")):
            with pytest.raises(WriteError, match="Read-only"):
                hs.classify(str(gpt2_folder), out=wanted, overwrite=True, **OPTIONS)
        assert content(out) == before


def test_a_write_that_fails_leaves_the_old_run_whole(folder, monkeypatch):
    run, before = hs.load(folder, with_tally=True), content(folder)
    real = run_folder.write_files

    def fail(files: dict[Path, bytes]) -> None:
        real(dict(list(files.items())[:3]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_folder, "write_files", fail)
    with pytest.raises(WriteError, match="space"):
        run.save(folder, overwrite=True)
    assert content(folder) == before
    assert names(folder.parent) == ["run"]


FAR = 10**12
FORGERIES: dict[str, tuple[str, Callable[[pd.DataFrame], pd.DataFrame]]] = {
    "a layer that no model has": ("heads.csv", lambda heads: heads.replace({"layer": {1: FAR}})),
    "the first two rows": ("heads.csv", lambda heads: heads.head(2)),
    "a head twice": ("heads.csv", lambda heads: heads.assign(head=0)),
    "no row": ("heads.csv", lambda heads: heads.head(0)),
    "evidence of another head": ("evidence.csv", lambda rows: rows.assign(head=FAR)),
    "no evidence": ("evidence.csv", lambda rows: rows.head(0)),
    "evidence of the first head alone": ("evidence.csv", lambda rows: rows[rows["layer"] == 0]),
    "evidence without its last row": ("evidence.csv", lambda rows: rows.head(-1)),
    "a cause of another head": ("causal.csv", lambda rows: rows.assign(layer=FAR)),
}
"""Tables that a forger changes and signs anew."""


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_heads_are_refused_by_their_file(folder, forgery):
    file, change = FORGERIES[forgery]
    table = pd.read_csv(io.BytesIO(stored(folder, file)), keep_default_na=False)
    content = change(table).to_csv(index=False).encode()
    packed = PACKED.get(file, file)
    (folder / packed).write_bytes(content if packed == file else gzip.compress(content))
    signed(folder)
    with no_hang(), pytest.raises(RunError, match=file):
        hs.load(folder)


def change_example(folder: Path, **facts: object) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["examples"][0] |= facts
    (folder / INDEX).write_text(json.dumps(index))
    signed(folder)


@pytest.mark.parametrize("facts", [{"layer": FAR}, {"tokens": ["x"] * 10**6}])
def test_a_forged_example_is_refused(folder, facts):
    change_example(folder, **facts)
    with no_hang(), pytest.raises(RunError, match="examples"):
        hs.load(folder)


def test_mean_patterns_of_other_heads_are_refused(folder):
    (folder / MEANS).write_bytes(means_file(np.zeros((2, 1, 24, 24)), {}))
    signed(folder)
    with pytest.raises(RunError, match=MEANS):
        hs.load(folder)


def test_a_forged_number_of_layers_is_refused(folder):
    edit(folder / RECORD, lambda info: info["model"].update(layers=FAR))
    with no_hang(), pytest.raises(RunError, match=r"heads\.csv"):
        hs.load(folder)
