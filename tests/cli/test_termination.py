"""SIGTERM ends a command with one message and its own exit code, and what is done is kept."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headscope.runs.folder import CHECKPOINT

CODE = """
from headscope.cli import main
from headscope.runs import checkpoint

checkpoint.EVERY = 0
main()
"""
COMMAND = (sys.executable, "-c", CODE)
"""The command line, which writes a run's state after every batch."""
ROOM = 64 * 2**30
"""Bytes of address space: enough for a run, and a limit."""


def arguments(corpus: Path, out: Path, *, tokens: int) -> list[str]:
    """A short run of mini."""
    command = f"classify mini --types positional,induction,delimiter --max-tokens {tokens}"
    return [*command.split(), "--corpus", str(corpus), "--out", str(out)]


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))


def terminated(words: list[str], begun, *, limit: bool = False) -> tuple[int, str]:
    """The exit code and what was said, of a command that gets SIGTERM when it has begun."""
    process = subprocess.Popen(
        [*COMMAND, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited if limit else None,
    )
    until = time.monotonic() + 240
    while not begun() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    return process.returncode, said


@pytest.fixture
def corpus(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("Alice was very tired. She looked at the old keys again. " * 4000)
    return path


@pytest.mark.parametrize(
    "limit",
    # the same and more is asked of a process that has a limit
    [pytest.param(False, marks=pytest.mark.slow), True],
    ids=["", "ulimit -v"],
)
def test_a_run_keeps_its_sums_and_says_how_to_go_on(corpus, tmp_path, limit):
    out = tmp_path / "run"
    state = tmp_path / ".run.partial" / CHECKPOINT
    words = arguments(corpus, out, tokens=40_000)
    code, said = terminated(words, state.is_file, limit=limit)
    assert (code, out.exists()) == (128 + signal.SIGTERM, False)
    assert "resumes" in said.strip().splitlines()[-1]
    assert "Traceback" not in said
    assert state.is_file()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_sweep_ends_without_a_stack_of_another_language(corpus, tmp_path, workers):
    out = tmp_path / "swept"
    words = ["sweep", "run", "--models", "mini", "--corpus", str(corpus), "--types", "positional"]
    words += ["--max-tokens", "40000", "--workers", workers]
    words += ["--out", str(out), "-q"]
    code, said = terminated(words, lambda: any(out.glob(".*.partial")), limit=workers == "1")
    assert code == 128 + signal.SIGTERM
    (line,) = said.strip().splitlines()
    assert line.startswith("headscope: ")
    assert "resumes" in line
