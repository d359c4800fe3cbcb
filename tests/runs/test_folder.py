"""A run folder that was altered, cut short, or leads elsewhere."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app, main
from headscope.errors import RunError
from headscope.run import load
from headscope.runs.folder import (
    CHECKED,
    EVIDENCE,
    INDEX,
    PATTERNS,
    REPORT,
    RUN,
    SUMS,
    TALLY,
)
from tests.fuzz.folders import make_run, sign_record, signed
from tests.limits import no_hang


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture(scope="module")
def sound_with_all_sums(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("whole") / "run", keep_sums=True)


@pytest.fixture
def folder(sound, sound_with_all_sums, tmp_path, request) -> Path:
    """A run; with all sums where a test is about their file."""
    callspec = getattr(request.node, "callspec", None)
    is_whole = callspec is not None and callspec.params.get("name") == TALLY
    return shutil.copytree(sound_with_all_sums if is_whole else sound, tmp_path / "run")


def edit(path: Path, change: Callable[[dict], object]) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))
    if path.name == RUN:
        sign_record(path)


@pytest.mark.parametrize("name", [SUMS, TALLY])
def test_run_json_states_the_checksum_of_every_file_that_is_read_back(folder, name):
    import hashlib

    stated = json.loads((folder / RUN).read_text())["files"]
    assert set(stated) == set(CHECKED) - {SUMS, TALLY} | {name}
    for file, sha256 in stated.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == sha256
    assert "files" not in load(folder).info


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("how", ["edited", "cut", "other", "gone"])
def test_each_file_that_is_not_the_one_that_was_written_is_named(folder, name, how):
    path, raw = folder / name, (folder / name).read_bytes()
    if how == "gone":
        path.unlink()
    else:
        other = (folder / REPORT).read_bytes()
        path.write_bytes(
            {"edited": raw.replace(b"1", b"2", 1), "cut": raw[:-1], "other": other}[how]
        )
    message = "is missing" if how == "gone" else "this file is not the one that was written"
    for command in ("heads {}", "why {} 0.0", "report {}", "draw atlas {}", "verify {}"):
        result = CliRunner().invoke(app, command.format(folder).split())
        assert isinstance(result.exception, RunError)
        assert str(path) in str(result.exception)
        assert message in str(result.exception)


def test_an_edited_cell_is_named_as_altered_by_the_command_line(folder):
    import subprocess
    import sys

    (folder / EVIDENCE).write_text((folder / EVIDENCE).read_text().replace("False", "True", 1))
    command = [sys.executable, "-c", "from headscope.cli import main; main()", "heads", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"headscope: {folder / EVIDENCE}: this file is not the one")
    assert "edited, cut short or from another run; copy the folder again" in done.stderr
    assert done.stderr.count("\n") == 1


def test_patterns_and_sums_of_another_run_are_named(folder):
    for name in (SUMS, PATTERNS, INDEX):
        edit(folder / RUN, lambda facts, name=name: facts["files"].pop(name))
        with pytest.raises(RunError, match=f"{name}: not written with this run"):
            load(folder)
        (folder / name).unlink()
    assert len(load(folder).examples) == 0


def test_the_report_is_an_output_and_may_be_edited(folder):
    (folder / REPORT).write_text("mine")
    (folder / "notes.txt").write_text("mine too")
    assert len(load(folder).heads) == 4
    (folder / REPORT).unlink()
    assert len(load(folder).heads) == 4


def test_a_folder_of_an_earlier_format_is_refused_in_one_sentence(folder, capsys, monkeypatch):
    edit(folder / RUN, lambda facts: facts.update(format_version=1))
    message = f"{folder} was made by an earlier version of headscope: classify again"
    with pytest.raises(RunError, match=re.escape(message)):
        load(folder)
    for command in ("why {} 0.0", "report {}", "heads {}", "ablate {}"):
        monkeypatch.setattr("sys.argv", ["headscope", *command.format(folder).split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        said = capsys.readouterr().err
        assert message in said


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "patterns/../../x", "report.html", ""]
)
def test_a_checksum_of_what_is_no_file_of_a_run_is_refused(folder, name):
    edit(folder / RUN, lambda facts: facts["files"].update({name: "0" * 64}))
    with pytest.raises(RunError, match="which is no file of a run; those are"):
        load(folder)


@pytest.mark.parametrize("name", [RUN, *CHECKED, "patterns"])
def test_links_that_lead_out_of_the_folder_are_refused(folder, tmp_path, name):
    (folder / name).rename(tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match=f"leads out of the run folder, to {tmp_path / 'outside'}"):
        load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to(folder / name)
    with no_hang(), pytest.raises(RunError):
        load(folder)


def test_a_link_to_a_whole_run_is_a_run_and_is_replaced_where_it_leads(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder)
    run = load(link, with_tally=True)
    run.save(link, overwrite=True)
    assert link.is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "run"]
    assert len(load(folder).heads) == 4


def test_the_report_is_not_written_through_a_link_out_of_the_folder(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (folder / REPORT).unlink()
    (folder / REPORT).symlink_to(precious)
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert isinstance(result.exception, RunError)
    assert "leads out of the run folder" in str(result.exception)
    assert precious.read_text() == "precious"


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.mark), "w")


@pytest.mark.parametrize("name", CHECKED)
def test_a_pickle_in_a_run_folder_is_never_loaded(folder, tmp_path, name):
    mark = tmp_path / "mark"
    pickle.loads(pickle.dumps(Bomb(mark))).close()
    mark.unlink()  # the bomb works
    (folder / name).write_bytes(pickle.dumps(Bomb(mark)))
    signed(folder)
    with pytest.raises(RunError):
        list(load(folder, with_tally=True).examples)
    assert not mark.exists()


def test_pipes_and_huge_files_are_refused_unread(folder):
    import os

    (folder / SUMS).unlink()
    os.mkfifo(folder / SUMS)
    with (
        no_hang(),
        pytest.raises(RunError, match="this file of the run is no regular"),
    ):
        load(folder)
    (folder / SUMS).unlink()
    with (folder / SUMS).open("wb") as file:
        file.truncate(10**12)
    with no_hang(), pytest.raises(RunError, match="1,000,000,000,000 bytes, and no run has more"):
        load(folder)


def header(**tensors: dict) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\xff" * 8, (10**18).to_bytes(8, "little") + b"{}", b"[" * 10**6,
        header(target={"dtype": "F64", "shape": [10**9, 10**9, 10**9], "data_offsets": [0, 0]}),
        header(target={"dtype": "F64", "shape": [0, 10**18], "data_offsets": [0, 0]}),
        header(target={"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}) + b"1",
        header(target={"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}) + b"12",
        header(target={"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}) + b"12345678",
        header(),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [SUMS, TALLY, PATTERNS])
def test_sums_and_patterns_of_another_kind_are_refused_even_when_signed(folder, name, raw):
    (folder / name).write_bytes(raw)
    signed(folder)
    with no_hang(), pytest.raises(RunError, match=r"sums|tally|pattern"):
        list(load(folder, with_tally=True).examples)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda facts: facts.pop("model"), "model is missing"),
        (lambda facts: facts["relations"]["induction/repeat"].update(evil=1), "argument 'evil'"),
        (lambda facts: facts.update(relations=[]), "no attribute 'items'"),
    ],
)  # fmt: skip
def test_a_record_that_no_run_writes_is_named(folder, change, message):
    edit(folder / RUN, change)
    with pytest.raises(RunError) as error:
        load(folder)
    assert message in str(error.value)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**5, "9" * 10**6, "null", '"x"'])
def test_a_run_json_that_is_none_is_refused_in_few_words(folder, text):
    (folder / RUN).write_text(text)
    with no_hang(), pytest.raises(RunError, match=r"run\.json: this run is damaged") as error:
        load(folder)
    assert len(str(error.value)) < 500 + len(str(folder))


def test_names_that_are_not_utf8_are_saved_and_read_back(sound, tmp_path):
    run = load(sound)
    name = "mod\udce9le"  # a folder called so in Latin-1
    odd = hs.Run(run.heads, run.evidence, run.rules, run.info | {"model": {"name": name}})
    folder = odd.save(tmp_path / name)
    assert load(folder).info["model"]["name"] == name
    assert hs.load(folder).report().count("headscope</title>") == 1


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_that_can_be_no_folder_is_refused(sound, name):
    with pytest.raises(hs.HeadscopeError, match=r"no run here|should be the path of"):
        load(name)
    with pytest.raises(hs.HeadscopeError, match=r"cannot be written|should be the path of"):
        load(sound, with_tally=True).save(name)
