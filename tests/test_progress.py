"""Progress: who sees a bar, in a terminal, a notebook, or nowhere."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import headscope as hs
from headscope.cli.terminal import warn
from headscope.progress import other_bars, progress_bar

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


def screen(output: str) -> list[str]:
    """Lines that a terminal shows after some output; the cursor's moves are those of rich."""
    lines, row = [""], 0
    is_at_start = True
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", output):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
            is_at_start = True
        elif part == "\r":
            is_at_start = True
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif not part.startswith("\x1b"):
            lines[row] = part if is_at_start else lines[row] + part
            is_at_start = False
    return [line for line in lines if line.strip()]


def test_a_terminal_shows_a_bar_unless_it_is_off_and_nothing_of_it_stays(
    gpt2_folder, story, tmp_path
):
    both, out = seen_in_terminal(PROGRAM, [str(gpt2_folder), str(story)], tmp_path)
    off, seen, rest = both.split("and then\r\n")
    assert (off, rest) == ("", "")
    assert "loading the model" in seen
    plain = re.sub(r"\x1b\[\d+m", "", seen)
    assert re.search(r"reading attention: +\d+% .* tokens", plain)
    assert screen(both) == ["and then", "and then"]
    assert out == ""


def test_nothing_is_printed_where_nobody_waits(gpt2_folder, story, capfd):
    hs.classify(str(gpt2_folder), str(story), progress=True, **SMALL)
    assert capfd.readouterr() == ("", "")


class Terminal(io.StringIO):
    """Standard error as a terminal; a lost one fails as it does after its window was closed."""

    is_lost = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.is_lost:
            raise OSError(5, "Input/output error")
        return super().write(text)


def standard_error(monkeypatch) -> Terminal:
    """A terminal as standard error; pytest would take it away again after a fixture."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_lines_stand_above_a_bar_and_the_bar_comes_back(monkeypatch):
    terminal = standard_error(monkeypatch)
    with progress_bar(True, "counting", loads=True) as bar:
        bar(1, 2)
        warn("a line")
        bar(2, 2)
        line, shown = screen(terminal.getvalue())
        assert line.strip() == "a line"
        assert shown.startswith("counting:")
    assert [line.strip() for line in screen(terminal.getvalue())] == ["a line"]


def test_a_bar_is_off_the_screen_while_another_library_draws(monkeypatch):
    terminal = standard_error(monkeypatch)
    with progress_bar(True, "counting") as bar, other_bars() as are_wanted:
        assert are_wanted
        assert screen(terminal.getvalue()) == []
    with progress_bar(False) as bar, other_bars() as are_wanted:
        assert not are_wanted
        bar(1, 2)


def test_work_goes_on_if_the_terminal_is_lost(monkeypatch):
    terminal = standard_error(monkeypatch)
    with progress_bar(True, "counting") as bar:
        bar(1, 2)
        terminal.is_lost = True
        bar(2, 2)
    assert "counting" in terminal.getvalue()


def test_a_short_work_without_a_model_shows_no_bar(monkeypatch):
    terminal = standard_error(monkeypatch)
    with progress_bar(True, "counting", loads=False) as bar:
        bar(1, 2)
    assert terminal.getvalue() == ""
