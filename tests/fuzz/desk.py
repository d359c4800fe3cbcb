"""A user's desk: sound and damaged files of every kind, and a check that none is lost."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.user_files import FAULTY_FILES
from tests.helpers.run_folders import make_run
from tests.helpers.texts import SENTENCES
from tests.limits import no_hang

LONGEST_MESSAGE = 1500
SECONDS = 120
"""For one attempt: what is refused is refused at once, but the machine may have other work."""


@dataclass
class Desk:
    """The folder in which bad inputs are tried."""

    home: Path

    @property
    def run(self) -> str:
        """A run of `mini`."""
        return str(self.home / "runs" / "mini")

    @property
    def given(self) -> str:
        """A run of given patterns, without a model."""
        return str(self.home / "runs" / "given")

    def bad_paths(self) -> dict[str, str]:
        """Paths at which there is neither a model, a run, a corpus nor a sweep."""
        names = ["missing", "notes.rst", "empty.txt", "folder", "latin.conllu", "bad.json", "pipe"]
        odd = {
            "no name": "",
            "blank": " ",
            "too long": "x" * 5000,
            "nobody's home": "~nobody/x",
            "escapes": "\x1b[31mred\x1b[0m",
            "not UTF-8": "\udcff",
            "device": "/dev/null",
            "below a file": "notes.rst/x",
            "up": "..",
            "loop": "loop",
        }
        return {name: name for name in names} | odd

    def bad_targets(self, suffix: str) -> dict[str, str]:
        """Paths where nothing may be written: a user's file, or no file of this kind."""
        return {
            "other suffix": "new.xyz",
            "no suffix": "new",
            "folder": f"folder{suffix}",
            "below a file": f"notes.rst/new{suffix}",
            "user's": f"mine{suffix}",
            "no name": "",
            "too long": "x" * 5000 + suffix,
            "of a run": "runs/mini/run.json",
            "root": "/",
            "here": ".",
            "up": "runs/..",
        }

    def state(self) -> dict[str, str]:
        """Everything on the desk, by its bytes and kind."""
        return {str(path.relative_to(self.home)): _what(path) for path in self.home.rglob("*")}

    @contextmanager
    def guarded(self) -> Iterator[list[str]]:
        """Within this context the desk is the working folder; the list says what was changed."""
        changed: list[str] = []
        before, place = self.state(), Path.cwd()
        os.chdir(self.home)
        try:
            with no_network(), no_hang(SECONDS):
                yield changed
        finally:
            os.chdir(place)
            after = self.state()
            changed += sorted(f"{n} is new" for n in after.keys() - before.keys())
            changed += sorted(f"{n} is gone" for n in before.keys() - after.keys())
            changed += sorted(
                f"{n} is another" for n in before.keys() & after.keys() if before[n] != after[n]
            )
            for name in after.keys() - before.keys():
                _remove(self.home / name)


def make_desk(home: Path, mini_run: Path) -> Desk:
    """Lay everything out, a copy of a run of `mini` too."""
    home.mkdir()
    make_run(home / "runs" / "given")
    shutil.copytree(mini_run, home / "runs" / "mini")
    (home / "folder").mkdir()
    (home / "notes.rst").write_text("my notes")
    (home / "folder" / "thesis.tex").write_text("precious")
    (home / "keys.conllu").write_text(SENTENCES, encoding="utf-8")
    (home / "latin.conllu").write_bytes("# text = né\n".encode("latin-1"))
    for language in ("de", "en"):
        (home / f"{language}_keys-ud-test.conllu").write_text(SENTENCES, encoding="utf-8")
    (home / "bad.conllu").write_text("one\ttwo\n")
    (home / "wide.txt").write_text("wide words " * 20, encoding="utf-16")
    (home / "empty.txt").write_text("")
    (home / "bad.json").write_text("{")
    (home / "bad.yaml").write_text("models: [")
    (home / "odd.yaml").write_text("models: 5.5\ntypes: [poetic]")
    for suffix in (".csv", ".pdf", ".png", ".html", ".json"):
        (home / f"mine{suffix}").write_text("mine")
        (home / f"folder{suffix}").mkdir()
    for files in FAULTY_FILES.values():
        for name, content in files.items():
            (home / name).write_bytes(content)
    os.mkfifo(home / "pipe")
    for suffix in (".csv", ".jsonl"):
        os.mkfifo(home / f"pipe{suffix}")
    (home / "loop").symlink_to("loop")
    return Desk(home)


@contextmanager
def no_network() -> Iterator[None]:
    """No name is looked up: an answer of the hub would be another one tomorrow."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    before = socket.getaddrinfo
    socket.getaddrinfo = refuse
    try:
        yield
    finally:
        socket.getaddrinfo = before


def odd_message(message: str) -> str:
    """Fault of an error's message; empty for one short line of plain characters."""
    if not message.strip():
        return "the message is empty"
    if "\n" in message.strip():
        return f"the message has several lines: {message!r:.300}"
    if len(message) > LONGEST_MESSAGE:
        return f"the message has {len(message)} characters: {message!r:.200}"
    if "\x1b" in message:
        return f"the message holds a terminal escape: {message!r:.300}"
    return ""


def _what(path: Path) -> str:
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode):
        return f"{mode:o} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return f"{mode:o}" + (f" {path.readlink()}" if stat.S_ISLNK(mode) else "")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
