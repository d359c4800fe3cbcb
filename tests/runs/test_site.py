"""A folder of pages is replaced whole, and what is the user's stays in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headscope.errors import HeadscopeError, WriteError
from headscope.runs.site import GALLERY, check_site, new_site
from headscope.runs.write import write_file

MANIFEST = GALLERY.manifest


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
    listed = json.loads(everything(site).pop(MANIFEST))["files"]
    assert listed == ["a/report.html", "index.html", MANIFEST]
    assert [p.name for p in (tmp_path / "above").iterdir()] == ["site"]


def test_an_old_site_goes_only_when_asked_and_what_others_put_there_stays(tmp_path):
    site = tmp_path / "site"
    make(site, {"index.html": b"1", "gone/report.html": b"2"})
    mine = {"CNAME.txt": b"heads.example", "gone/notes.txt": b"3", "deep/er/a.txt": b"4"}
    for name, content in mine.items():
        write_file(site / name, content)
    (site / "link.txt").symlink_to("CNAME.txt")
    before = everything(site)
    with pytest.raises(WriteError, match="holds a gallery already; choose another --out, or add"):
        make(site, {"index.html": b"new"})
    with pytest.raises(ZeroDivisionError), new_site(site, overwrite=True):
        raise ZeroDivisionError
    assert everything(site) == before
    make(site, {"index.html": b"new"}, overwrite=True)
    after = everything(site)
    del after[MANIFEST]
    assert after == {**mine, "index.html": b"new", "link.txt": b"heads.example"}
    assert (site / "link.txt").is_symlink()
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("way", ["a/report.html", "a", "a/report.html/below.txt"])
def test_a_file_of_the_user_s_that_is_in_the_way_stops_it(tmp_path, way):
    site = tmp_path / "site"
    make(site, {"index.html": b"1"})
    write_file(site / way, b"precious")
    before = everything(site)
    with pytest.raises(WriteError, match="is in the way, and no gallery wrote it"):
        make(site, {"a/report.html": b"2"}, overwrite=True)
    assert everything(site) == before
    assert (site / way).read_bytes() == b"precious"
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


def test_a_folder_with_anything_else_is_never_a_site_s(tmp_path, monkeypatch):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.tex").write_text("precious")
    (tmp_path / "file").write_text("precious")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / MANIFEST).write_text("[" * 9)
    says = {
        "thesis": "contains other files and no gallery; choose an empty or new folder",
        "file": "is a file; --out names a folder",
        "bad": "is damaged, so that what is headscope's in",
    }
    for name, said in says.items():
        with pytest.raises(HeadscopeError, match=said):
            check_site(tmp_path / name, overwrite=True)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(HeadscopeError, match="is the working folder or holds it"):
        check_site(Path(), overwrite=True)
    monkeypatch.chdir(tmp_path)
    check_site(tmp_path / "empty", overwrite=False)
    check_site(tmp_path / "new", overwrite=False)
