"""Every command refuses unreadable input and unwritable output before it loads a model."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz import commands
from tests.fuzz.desk import Desk, make_desk
from tests.helpers.disks import disk, fill
from tests.helpers.shell import headscope
from tests.helpers.studies import FUNCTIONS, line

FIGURES = {"figure": ".png", "out": ".csv"}
"""The suffixes of what commands write; a folder has none."""
OTHERS = dict.fromkeys(commands.FOLDERS, "") | {"atlas": ".pdf", "show": ".html", "report": ".html"}
"""The suffix of --out of commands that write no tables."""
BAD = {
    "missing": None,
    "bad": b"one\ttwo\n",
    "wide": "wide words ".encode("utf-16") * 20,
    "empty": b"",
    "latin": "# text = né\n".encode("latin-1"),
}


class LoadedError(BaseException):
    """A model was about to be loaded."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory, mini_run) -> Desk:
    made = make_desk(tmp_path_factory.mktemp("before") / "desk", mini_run)
    for name, content in BAD.items():
        if content is not None:
            (made.home / f"fr_{name}-ud-test.conllu").write_bytes(content)
    (made.home / "nothing").mkdir()
    return made


@pytest.fixture(autouse=True)
def no_loader(monkeypatch) -> None:
    def load(*_: object, **__: object) -> None:
        raise LoadedError

    monkeypatch.setattr("headscope.models.load.load_weights", load)


def ended(desk: Desk, line: list[str]) -> tuple[object, str]:
    """The exit code of a command and what it said."""
    done = headscope(*line, cwd=desk.home)
    return done.returncode, done.stdout + done.stderr


def names(*options: str) -> Iterator[tuple[str, str]]:
    """The commands that take one of these options, and which."""
    for name, function in FUNCTIONS.items():
        for parameter in commands.parameters(function):
            if parameter.name in options and parameter.flag:
                yield name, parameter.name


def sound(desk: Desk, name: str) -> list[str]:
    """Arguments with which the command loads a model."""
    return commands.sound(desk)[name]


def loads(desk: Desk, line: list[str]) -> bool:
    try:
        ended(desk, line)
    except LoadedError:
        return True
    return False


READERS = [name for name, _ in names("corpus") if name != "languages"]
"""Commands that read a text first; `languages` needs the tokenizer to find shared documents."""
WRITERS = [(name, option) for name, option in names(*FIGURES)]


@pytest.mark.parametrize("name", READERS)
def test_a_corpus_that_cannot_be_read_is_refused_before_a_model_is_loaded(name, desk):
    assert loads(desk, [*line(name), *sound(desk, name)])
    wrong = [f"fr_{bad}-ud-test.conllu" for bad in BAD]
    for corpus in [*wrong, "nothing", "notes.rst"]:
        code, said = ended(desk, [*line(name), *sound(desk, name), "--corpus", corpus])
        # a cell of a sweep that fails is named in its table
        assert code == (1 if name == "sweep" else 2), said
        assert corpus in said or "is asked of made sequences" in said
        assert "Traceback" not in said
    shutil.rmtree(desk.home / "swept", ignore_errors=True)


@pytest.fixture(scope="module")
def read_only(tmp_path_factory) -> Iterator[Path]:
    with disk(tmp_path_factory.mktemp("disks") / "fixed", "size=1m") as folder:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield folder


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> Iterator[Path]:
    with disk(tmp_path_factory.mktemp("disks") / "full", "size=64k") as folder:
        fill(folder)
        yield folder


@pytest.mark.parametrize(("name", "option"), WRITERS)
def test_what_cannot_be_written_is_refused_before_a_model_is_loaded(
    name, option, desk, read_only, full
):
    disks = [(read_only, "Read-only file system"), (full, "No space left")]
    # how much room a run needs depends on its model
    for folder, reason in disks[:1] if name == "classify" else disks:
        suffix = OTHERS.get(name, ".csv") if option == "out" else FIGURES[option]
        words = [*line(name), *sound(desk, name), f"--{option}", str(folder / f"new{suffix}")]
        code, said = ended(desk, words)
        assert code == 2, said
        assert f"cannot be written: {reason}" in said


@pytest.mark.parametrize("words", [["ablate"], ["explain"]], ids=" ".join)
def test_a_run_that_takes_no_more_tables_is_refused_before_its_model_is_loaded(
    words, desk, tmp_path
):
    assert loads(desk, [*line(words[0]), desk.run, *words[1:]])
    with disk(tmp_path / "small", "size=64m") as small:
        run = shutil.copytree(desk.run, small / "mini")
        fill(small)
        code, said = ended(desk, [*line(words[0]), str(run), *words[1:]])
        assert (code, "No space left" in said) == (2, True), said
