"""What can go wrong beside a run folder: two processes, a full disk, a folder that is read-only."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.runs import store
from headscope.runs.workplace import NEW, OLD, workplace
from tests.fuzz.folders import make_run
from tests.helpers.disks import disk
from tests.helpers.shell import headscope
from tests.kill.kill import content

OPTIONS = {"types": ["induction"], "max_tokens": 500}


@pytest.fixture
def folder(tmp_path) -> Path:
    return make_run(tmp_path / "runs" / "tiny")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_work_that_fails_takes_back_the_folder_that_it_made_and_no_other(tmp_path):
    (tmp_path / "mine").mkdir()
    for parent in ("made", "mine"):
        with pytest.raises(RunError, match="cut"), workplace(tmp_path / parent / "run"):
            raise RunError("cut")
    assert names(tmp_path) == ["mine"]


def test_a_second_process_is_refused_until_the_first_ends(gpt2_folder, tmp_path):
    out = tmp_path / "run"
    code = (
        "import sys, time; from pathlib import Path; from headscope.runs.workplace import workplace\n"
        "with workplace(Path(sys.argv[1])): print('there', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "there\n"
        second = headscope("classify", gpt2_folder, "--types", "induction", "--out", out, "-q")
        assert second.returncode == 2
        assert second.stderr == (
            f"headscope: {out}: another process is writing this run; wait for it, or choose "
            "another --out\n"
        )
        with workplace(tmp_path / "other"):  # another folder is free
            pass
        first.kill()
    assert names(tmp_path) == [".run.partial"]
    with workplace(out):
        pass
    assert names(tmp_path) == []


def test_what_a_killed_process_left_is_put_right(folder):
    before, work = content(folder), folder.with_name(".tiny.partial")
    # killed between moving the old run away and the new one into place
    work.mkdir()
    folder.rename(work / OLD)
    (work / NEW).mkdir()
    (work / ".headscope-0a1b2c.new").write_bytes(b"half of a state")
    with workplace(folder):
        assert content(folder) == before
        assert names(work) == ["lock"]
    # killed before the old run was removed
    work.mkdir()
    shutil.copytree(folder, work / OLD)
    with workplace(folder):
        assert names(work) == ["lock"]
    assert content(folder) == before
    assert names(folder.parent) == ["tiny"]


def test_a_link_in_its_place_is_not_followed(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "newest.txt").write_text("precious")
    folder.with_name(".tiny.partial").symlink_to(elsewhere)
    with pytest.raises(RunError, match=r"\.tiny\.partial is a link"), workplace(folder):
        pass
    assert names(elsewhere) == ["newest.txt"]


def test_a_read_only_folder_is_named_and_left_as_it_is(gpt2_folder, folder, tmp_path):
    with disk(tmp_path / "fixed", "size=64m"):
        out = shutil.copytree(folder, tmp_path / "fixed" / "run")
        before = content(out)
        subprocess.run(["mount", "-o", "remount,ro", str(out.parent)], check=True)
        for wanted in (out, out.with_name("new")):
            with pytest.raises(RunError, match="cannot be written: Read-only file system"):
                hs.classify(str(gpt2_folder), out=wanted, overwrite=True, **OPTIONS)
        assert content(out) == before


@pytest.mark.parametrize("part", ["evidence.csv", "heads.csv", "report.html", "run.json"])
def test_a_write_that_fails_leaves_the_old_run_whole(folder, monkeypatch, part):
    run, before = hs.load(folder), content(folder)
    real = store.write_file

    def fail(path: Path, data: bytes, **options: bool) -> Path:
        if path.name == part:
            raise OSError(28, "No space left on device")
        return real(path, data, **options)

    monkeypatch.setattr(store, "write_file", fail)
    from headscope.run import load

    with pytest.raises(RunError, match="tiny cannot be written: No space left on device"):
        load(folder, with_tally=True).save(folder, overwrite=True)
    assert content(folder) == before
    assert run.heads.equals(hs.load(folder).heads)
    assert names(folder.parent) == ["tiny"]
