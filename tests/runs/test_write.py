"""The one writer of files: whole or not at all, no silent overwrite, rights of the umask."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headscope.errors import WriteError
from headscope.runs.write import write_file, write_files


@pytest.fixture
def umask():
    old = os.umask(0o027)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_is_there_is_kept_unless_told(tmp_path):
    path = tmp_path / "thesis.csv"
    path.write_text("precious")
    with pytest.raises(WriteError, match=r"thesis\.csv.*--overwrite"):
        write_file(path, b"new")
    assert path.read_text() == "precious"
    write_file(path, b"new", overwrite=True)
    assert path.read_text() == "new"
    assert names(tmp_path) == ["thesis.csv"]


def test_the_rights_are_those_of_the_umask_and_of_the_file_that_is_replaced(tmp_path, umask):
    assert mode(write_file(tmp_path / "new", b"")) == 0o640
    old = tmp_path / "old"
    old.touch()
    old.chmod(0o604)
    write_file(old, b"x", overwrite=True)
    assert mode(old) == 0o604


def test_a_link_is_kept_and_its_file_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.csv", tmp_path / "link.csv"
    link.symlink_to(real)
    with pytest.raises(WriteError, match="link"):
        write_file(link, b"new")
    write_file(link, b"new", overwrite=True)
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert names(tmp_path) == ["far", "link.csv"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_files_and_nothing_beside_them(
    tmp_path, monkeypatch, error
):
    old = tmp_path / "old"
    old.write_text("precious")
    with pytest.raises(WriteError, match="old"):
        write_files({tmp_path / "new": b"1", old: b"2"})
    forced = []

    def fail(file: int) -> None:
        forced.append(file)
        if len(forced) == 2:
            raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((WriteError, KeyboardInterrupt)):
        write_files({tmp_path / "new": b"1", old: b"2"}, overwrite=True)
    assert old.read_text() == "precious"
    assert names(tmp_path) == ["old"]


@pytest.mark.parametrize("name", ["folder", "file/below", "x" * 300, "a\0b"])
def test_what_can_be_no_file_is_said(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")
    with pytest.raises(WriteError):
        write_file(tmp_path / name, b"x", overwrite=True)
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "precious"
