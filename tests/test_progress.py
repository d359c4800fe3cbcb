"""Progress: who sees a bar, in a terminal, a notebook, or nowhere."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import headscope as hs
from headscope.progress import progress_bar

SMALL = {"examples": False, "types": ["delimiter", "positional"]}
PROGRAM = """
import sys, headscope as hs
for progress in (False, True):
    hs.classify(
        *sys.argv[1:], examples=False, types=["delimiter"], progress=progress
    )
    print("and then", file=sys.stderr)
"""


def seen_in_terminal(code: str, words: list[str], folder: Path) -> tuple[str, str]:
    """Output of a program to a terminal on standard error, and to a file on standard output."""
    reader, writer = pty.openpty()
    with (folder / "stdout").open("w") as out:
        program = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=out, stderr=writer, cwd=folder
        )
    os.close(writer)
    seen = bytearray()
    with suppress(OSError):  # a terminal ends so
        while part := os.read(reader, 4096):
            seen += part
    os.close(reader)
    assert program.wait() == 0, seen.decode()
    return seen.decode(), (folder / "stdout").read_text()


def test_python_shows_a_bar_in_a_terminal_unless_it_is_off_and_leaves_nothing_there(
    gpt2_folder, story, tmp_path
):
    both, out = seen_in_terminal(PROGRAM, [str(gpt2_folder), str(story)], tmp_path)
    off, seen, rest = both.split("and then\r\n")
    assert (off, rest) == ("", "")
    assert "loading the model" in seen
    assert re.search(r"reading attention: +\d+%", seen)
    assert "tokens/s" in seen
    assert seen.rstrip(" \r\n").endswith("\r") or seen.rsplit("\r", 1)[-1].strip() == ""
    assert out == ""


def test_nothing_is_printed_where_nobody_waits(gpt2_folder, story, capfd):
    hs.classify(str(gpt2_folder), str(story), progress=True, **SMALL)
    assert capfd.readouterr() == ("", "")


class Log(io.StringIO):
    """Standard error as a file; `has_line` is set when a line with its word has been written."""

    def __init__(self, word: str) -> None:
        super().__init__()
        self.word, self.has_line = word, threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.word in self.getvalue():
            self.has_line.set()
        return count


def test_without_a_terminal_lines_state_the_progress_until_the_work_ends(monkeypatch):
    monkeypatch.setattr("headscope.progress.LINE_SECONDS", 0.01)
    threads = threading.active_count()
    for word, steps in (("loading the model", []), ("counting: 3 of 1,000 pages", [(3, 1000)])):
        log = Log(word)
        monkeypatch.setattr(sys, "stderr", log)
        with progress_bar(True, "counting", unit="pages") as bar:
            for done, total in steps:
                bar(done, total)
            assert log.has_line.wait(30)
        assert "\r" not in log.getvalue()
        assert all(line.startswith("headscope: ") for line in log.getvalue().splitlines())
        assert threading.active_count() == threads


def test_no_line_is_printed_if_progress_is_off(monkeypatch):
    monkeypatch.setattr("headscope.progress.LINE_SECONDS", 0.0)
    log = Log("headscope")
    monkeypatch.setattr(sys, "stderr", log)
    with progress_bar(False) as bar:
        bar(1, 2)
        assert not log.has_line.wait(0.1)
    assert log.getvalue() == ""


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_stand_above_a_bar_and_the_bar_comes_back(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    from headscope.cli.terminal import warn

    with progress_bar(True, "counting", loads=True) as bar:
        bar(1, 2)
        warn("a line")
        bar(2, 2)
    cleared = terminal.getvalue().split("a line\n")
    assert len(cleared) == 2
    assert cleared[0].rsplit("\r", 1)[-1].strip() == ""  # the bar's own line is empty by then
    assert "counting" in cleared[1]
