"""Progress: who sees a bar, in a terminal, a notebook, or nowhere."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

import headscope as hs
from headscope.cli.terminal import warn
from headscope.progress import (
    Forecast,
    announced_costs,
    other_bars,
    peak_memory,
    progress_bar,
)
from tests.helpers.shell import headscope

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


class Clock:
    """A clock that stands until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def announced(steps: list[tuple[float, int, int]]) -> list[str]:
    """Lines on the cost of work that reports after so many seconds each (done, total)."""
    clock, lines = Clock(), []
    seen: list[tuple[int, int]] = []
    forecast = Forecast(lambda *step: seen.append(step), lines.append, "tokens", clock=clock)
    for seconds, done, total in steps:
        clock.now += seconds
        forecast.update(done, total)
    assert seen == [step[1:] for step in steps]
    return [line.partition(" and ")[0] for line in lines]


def test_the_cost_of_long_work_is_announced_once_after_its_first_steps():
    # 400 of 40,000 tokens in 2 seconds
    steps = [(0, 0, 40_000), *((2, 400 * step, 40_000) for step in range(1, 6))]
    assert announced(steps[:1]) == []
    assert announced(steps[:2]) == ["about 3 minutes for 40,000 tokens"]
    assert announced(steps) == announced(steps[:2])
    # fast steps are taken together
    fast = [(0, 0, 40_000), *((0.25, 50 * step, 40_000) for step in range(1, 20))]
    assert announced(fast[:4]) == []
    assert announced(fast) == announced(steps)


def test_the_cost_of_work_below_20_seconds_is_not_announced():
    assert announced([(0, 0, 10), *((1.9, step, 10) for step in range(1, 11))]) == []
    assert announced([(0, 0, 10), *((2, step, 10) for step in range(1, 11))]) == [
        "about 20 seconds for 10 tokens"
    ]


def test_steps_of_a_stopped_run_do_not_count():
    done_before = [(0.01, 1_000 * step, 40_000) for step in range(31)]
    # 9,000 tokens are left after the batch that was read first
    rest = [(4, 30_000 + 1_000 * step, 40_000) for step in range(1, 10)]
    assert announced(done_before + rest) == ["about 40 seconds for 9,000 tokens"]


def test_work_after_reading_is_not_measured_as_reading():
    reading = [(0, 0, 4_000), (1.2, 3_500, 4_000), (0.2, 4_000, 4_000)]
    assert announced([*reading, (3, 4_010, 8_000), (0.1, 8_000, 8_000)]) == []


def test_memory_is_that_of_the_process():
    before = float(peak_memory().removesuffix(" GB"))
    held = bytearray(400_000_000)
    held[::4_096] = b"1" * len(held[::4_096])
    after = float(peak_memory().removesuffix(" GB"))
    assert 0.4 <= after <= before + 0.5


@pytest.mark.parametrize("progress", [True, False])
def test_costs_are_announced_where_no_bar_is_drawn_unless_progress_is_off(
    monkeypatch, capfd, progress
):
    clock = Clock()
    monkeypatch.setattr("headscope.progress.Forecast", partial(Forecast, clock=clock))
    lines: list[str] = []
    with announced_costs(lines.append), progress_bar(progress, unit="layers") as bar:
        bar(0, 30)
        clock.now += 60
        bar(1, 30)
    assert [line.startswith("about 30 minutes for 30 layers and ") for line in lines] == (
        [True] if progress else []
    )
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_command_announces_its_cost_on_one_line_unless_quiet(
    gpt2_folder, story, tmp_path, monkeypatch, quiet
):
    monkeypatch.setattr("headscope.progress.LAP_SECONDS", 0)
    words = ["classify", gpt2_folder, "--corpus", story, "--types", "delimiter"]
    done = headscope(*words, "--out", tmp_path / "run", *quiet, long_seconds=0)
    assert done.returncode == 0
    lines = [line for line in done.stderr.splitlines() if "about" in line and "tokens" in line]
    assert len(lines) == (0 if quiet else 1)
    assert done.stderr.splitlines() == lines
