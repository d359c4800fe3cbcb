"""The one writer of files: whole or not at all, nothing replaced unless asked, rights of the umask."""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path

import pytest

import headscope
from headscope.errors import WriteError
from headscope.runs.write import new_folder, write_file, write_files


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
    with pytest.raises(WriteError, match=r"thesis\.csv exists already; .* or add --overwrite"):
        write_file(path, b"new")
    assert path.read_text() == "precious"
    write_file(path, b"new", overwrite=True)
    assert path.read_text() == "new"
    assert names(tmp_path) == ["thesis.csv"]


def test_a_file_that_came_meanwhile_is_kept(tmp_path):
    path = tmp_path / "out.csv"

    def slow(beside: Path) -> None:
        beside.write_bytes(b"ours")
        path.write_text("precious")

    with pytest.raises(WriteError, match="File exists"):
        write_file(path, slow)
    assert path.read_text() == "precious"
    assert names(tmp_path) == ["out.csv"]


def test_the_rights_are_those_of_the_umask_and_of_the_file_that_is_replaced(tmp_path, umask):
    from safetensors.numpy import save_file

    new = write_file(tmp_path / "new", lambda path: save_file({}, path))
    assert mode(new) == 0o640
    old = tmp_path / "old"
    old.touch()
    old.chmod(0o604)
    write_file(old, b"x", overwrite=True)
    assert mode(old) == 0o604
    with new_folder(tmp_path / "model") as folder:
        save_file({}, folder / "model.safetensors")
        (folder / "sub").mkdir()
    assert mode(tmp_path / "model") == 0o750
    assert mode(tmp_path / "model" / "model.safetensors") == 0o640


def test_a_link_is_kept_and_its_file_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far" / "real.csv", tmp_path / "link.csv"
    link.symlink_to(real)
    with pytest.raises(WriteError, match="exists already"):
        write_file(link, b"new")
    write_file(link, b"new", overwrite=True)
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert names(tmp_path) == ["far", "link.csv"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    old = tmp_path / "old"
    old.write_text("precious")

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match="old cannot be written: No space left on device"):
        write_file(old, fail, overwrite=True)
    assert old.read_text() == "precious"
    with pytest.raises(WriteError):
        write_files({tmp_path / "new": b"1", old: b"2"})
    with pytest.raises(KeyboardInterrupt):
        write_file(old, lambda path: (_ for _ in ()).throw(KeyboardInterrupt), overwrite=True)
    assert names(tmp_path) == ["old"]


def test_a_device_is_written_to_and_never_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_file(pipe, b"through", overwrite=True)
        assert reader.communicate()[0] == b"through"
    assert pipe.is_fifo()
    with pytest.raises(WriteError, match="/dev/full cannot be written: No space left on device"):
        write_file(Path("/dev/full"), b"x")


@pytest.mark.parametrize("name", ["folder", "file/below", "loop", "x" * 300, "a\0b"])
def test_what_can_be_no_file_is_said(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(WriteError):
        write_file(tmp_path / name, b"x", overwrite=True)
    assert names(tmp_path) == ["file", "folder", "loop"]
    assert (tmp_path / "file").read_text() == "precious"


def test_a_folder_that_is_there_is_never_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.tex").write_text("precious")
    with pytest.raises(WriteError, match="model cannot be written"), new_folder(tmp_path / "model"):
        pass
    assert names(tmp_path) == ["model"]
    assert names(tmp_path / "model") == ["thesis.tex"]


WRITERS = {"write_text", "write_bytes", "savefig", "save_file", "save_pretrained"}
ELSEWHERE = {
    # to a path or a buffer that `headscope.runs.write` or its caller made
    ("runs/checkpoint.py", "save_file"), ("runs/patterns.py", "save_file"),
    ("runs/sums.py", "save_file"),
    ("views/figure_style.py", "savefig"),
    ("runs/pack_atlas.py", "open"),
    ("cli/terminal.py", "open"),  # of /dev/null, where there is no standard error
    # into a folder of the system's for temporary files
    ("runs/atlas.py", "write_bytes"),
    ("models/engines/lens.py", "save_pretrained"),
    # into a folder of its own that takes its place in the cache when it is whole
    ("models/weights.py", "save_pretrained"),
    ("models/packaged.py", "write_text"),
}  # fmt: skip
TABLES = {"to_csv", "to_json"}
MODES = {m + b for m in ("w", "x", "a", "r+") for b in ("", "b", "t")} | {"rb+"}


def test_no_other_module_writes_files():
    """What writes a file, by its name; tables become text where no path is given."""
    home = Path(headscope.__file__).parent
    found = set()
    for path in home.rglob("*.py"):
        name = path.relative_to(home).as_posix()
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if name == "runs/write.py" or not isinstance(call, ast.Call):
                continue
            called = getattr(call.func, "attr", getattr(call.func, "id", ""))
            table = isinstance(call.func, ast.Attribute) and called in TABLES and call.args
            given = [part.value for part in call.args if isinstance(part, ast.Constant)]
            to_write = called == "open" and MODES & set(given)
            if called in WRITERS or table or to_write:
                found.add((name, called))
    assert found == ELSEWHERE
