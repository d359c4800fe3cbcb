"""A folder of pages is written whole, and the files of the user stay in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import WriteError
from headscope.runs.site import new_site
from headscope.runs.write import write_file


def make(folder: Path, files: dict[str, bytes], *, overwrite: bool = False) -> None:
    with new_site(folder, overwrite=overwrite) as new:
        for name, content in files.items():
            write_file(new / name, content)


def everything(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_a_site_is_made_whole_or_not_at_all(tmp_path):
    site = tmp_path / "above" / "site"
    with pytest.raises(WriteError):
        make(site, {"index.html": b"half", "a\0b": b""})
    assert list((tmp_path / "above").iterdir()) == []
    make(site, {"index.html": b"1", "a/report.html": b"2"})
    assert everything(site) == {"index.html": b"1", "a/report.html": b"2"}
    assert [p.name for p in (tmp_path / "above").iterdir()] == ["site"]


def test_files_are_replaced_only_when_asked_and_all_others_stay(tmp_path):
    site = tmp_path / "site"
    before = {"CNAME.txt": b"heads.example", "index.html": b"1"}
    make(site, before)
    with pytest.raises(WriteError, match="--overwrite"):
        make(site, {"index.html": b"new"})
    with pytest.raises(WriteError):
        make(site, {"index.html": b"half", "a\0b": b""}, overwrite=True)
    assert everything(site) == before
    make(site, {"index.html": b"new"}, overwrite=True)
    assert everything(site) == before | {"index.html": b"new"}
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


def test_a_file_is_no_folder_of_a_site(tmp_path):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(WriteError, match="file"):
        make(tmp_path / "file", {}, overwrite=False)
    with pytest.raises(WriteError, match=r"^/ "):
        make(Path("/"), {})
