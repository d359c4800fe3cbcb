"""Output to a terminal, and to places where nothing can be written."""

from __future__ import annotations

import ast
import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.cli.terminal import folded, harmless
from headscope.errors import RunError
from tests.helpers.hand_built import run_of
from tests.helpers.run_folders import make_run
from tests.helpers.shell import headscope

COMMAND = (sys.executable, "-c", "from headscope.cli import main; main()")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


def shell(line: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A line of shell in which "$@" is headscope with these arguments."""
    words = ["bash", "-o", "pipefail", "-c", line, "bash", *COMMAND, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("arguments", [["heads"], ["heads", "--format", "csv"], ["why", "L0H0"]])
def test_a_full_disk_is_one_line_and_exit_code_2(run, arguments):
    done = shell('"$@" > /dev/full', arguments[0], run, *arguments[1:])
    assert done.returncode == 2
    assert done.stderr.startswith("headscope: standard output")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error(run):
    done = shell('"$@" | true', "heads", run, "--format", "json")
    assert done.returncode in (0, 141)  # 0 if the pipe took it all before it was closed
    assert done.stderr == ""
    # the reader is gone before anything is printed
    done = shell('{ sleep 0.3; "$@"; } | true', "heads", run)
    assert done.returncode == 141
    assert done.stderr == ""


def test_a_closed_stdout_is_one_line_and_exit_code_2(run):
    done = shell('"$@" >&-', "heads", run)
    assert done.returncode == 2
    assert done.stderr.startswith("headscope: standard output")
    assert done.stderr.count("\n") == 1


def test_a_closed_stderr_never_lends_its_number_to_a_file(run, tmp_path):
    page = tmp_path / "page.html"
    done = shell('"$@" 2>&-', "report", run, "--out", page)
    assert done.returncode == 0
    assert page.read_text() == hs.load(run).report()


def test_a_file_of_a_run_that_cannot_be_read_is_one_line(run, tmp_path, monkeypatch):
    folder, real = shutil.copytree(run, tmp_path / "run"), Path.open

    def fail(path: Path, *more: object, **options: object) -> object:
        if path.name == bad:
            raise OSError(5, "Input/output error")
        return real(path, *more, **options)

    monkeypatch.setattr(Path, "open", fail)
    for bad in ("run.json", "evidence.csv.gz", "heads.csv", "causal.csv"):
        with pytest.raises(RunError, match=bad):
            hs.load(folder, with_tally=True)


def test_what_is_harmless_stays():
    text = "Zoë’s 5 % – «naïve» 日本 🙂\u00a0\n\tx".replace("\t", "")
    assert harmless(text) == text
    assert harmless("a\rb\tc\x9b") == "a⟨d⟩b⇥c⟨9b⟩"


def test_commands_print_by_one_module_alone():
    home = Path(hs.__file__).parent / "cli"
    for path in home.glob("*.py"):
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        prints = [n for n in calls if getattr(n.func, "id", "") == "print"]
        assert not prints or path.name == "terminal.py", path


def test_prose_is_folded_at_a_width_and_goes_on_indented():
    text = "L5H1: induction\n\n  yes mass (the share of its attention): 0.93"
    assert folded(text, 24) == (
        "L5H1: induction\n\n  yes mass (the share of\n    its attention): 0.93"
    )
    assert folded("", 10) == ""


@pytest.mark.parametrize("width", [8, 30, 100])
def test_folding_loses_no_word_and_no_line_is_wider(width):
    rng = np.random.default_rng(0)
    words = ["a", "longer", "x" * 40, "— [0.1,", "0.2]"]
    text = "\n".join(
        " " * int(rng.integers(5)) + " ".join(rng.choice(words, 12)) for _ in range(20)
    )
    shown = folded(text, width)
    assert "".join(shown.split()) == "".join(text.split())
    assert max(map(len, shown.split("\n"))) <= width


def test_why_keeps_to_the_terminals_width_and_to_100_columns_in_a_pipe(tmp_path):
    """A real terminal states its width."""
    from rich.cells import cell_len

    run_of("P", name="one head", size=10).save(tmp_path / "run")
    command = [sys.executable, "-m", "headscope", "why", str(tmp_path / "run"), "L0H0", "--full"]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    texts = {100: done.stdout}
    for columns in (60, 120):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        with subprocess.Popen(command, stdout=theirs, env=environment) as process:
            os.close(theirs)
            seen = b""
            with suppress(OSError):  # a terminal ends so
                while part := os.read(ours, 4096):
                    seen += part
            assert process.wait() == 0
        os.close(ours)
        texts[columns] = seen.decode().replace("\r\n", "\n")
    for width, text in texts.items():
        widest = max(map(cell_len, text.split("\n")))
        assert width - 20 < widest <= width
        assert text.split() == texts[100].split()


@pytest.mark.parametrize(
    "words", ["classify mini --max-tokens 2000 --types positional -q", "heads atlas:smollm2"]
)
def test_prose_beside_tables_keeps_to_100_columns_in_a_pipe_and_tables_to_160(words, tmp_path):
    from rich.cells import cell_len

    done = headscope(*words.split(), cwd=tmp_path, columns=0)  # no width is stated
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.split("\n")]
    # rows of tables have runs of blanks between their columns; commands and paths stay whole
    prose = [line for line in lines if "  " not in line]
    prose = [line for line in prose if not line.startswith(("next: ", "written to "))]
    assert 80 < max(map(cell_len, prose)) <= 100
    assert max(map(cell_len, lines)) <= 160
    if words.startswith("heads"):
        assert max(map(cell_len, lines)) > 100


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("words", [("heads", "atlas:smollm2"), ("why", "atlas:smollm2", "L10H1")])
def test_what_is_piped_keeps_to_columns(words, columns):
    from rich.cells import cell_len

    printed = headscope(*words, columns=columns).stdout
    assert columns - 20 < max(map(cell_len, printed.split("\n"))) <= columns
