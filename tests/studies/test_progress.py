"""Progress: who sees a bar, and what is told of the time and the room that long work takes."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

import headscope as hs
from headscope import progress as module
from headscope.errors import ArgumentError
from headscope.models import load
from headscope.models.locate import locate
from headscope.printing import are_bars_wanted
from headscope.progress import RunSteps, progress_bar
from tests.helpers.terminal import in_terminal
from tests.helpers.treebanks import save_treebanks

SMALL = {"twin": False, "examples": False, "types": ["delimiter", "positional"]}


PROGRAM = """
import sys, headscope as hs
for progress in (False, True):
    hs.classify(
        *sys.argv[1:], twin=False, examples=False, types=["delimiter"], progress=progress
    )
    print("and then", file=sys.stderr)
"""


def seen_in_terminal(code: str, words: list[str], folder: Path) -> tuple[str, str]:
    """What a program writes to a terminal on standard error, and to a file on standard output."""
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


COMMAND = """
import sys
from headscope.cli import main

*words, folder = sys.argv[1:]
for name, more in (("one", ["--quiet"]), ("two", [])):
    sys.argv = ["headscope", *words, "--out", f"{folder}/{name}", *more]
    try:
        main()
    except SystemExit as end:
        print("ended with", end.code, file=sys.stderr)
"""


def test_the_command_shows_the_same_bar_unless_it_is_quiet(gpt2_folder, story, tmp_path):
    words = ["classify", str(gpt2_folder), "--corpus", str(story), "--types", "delimiter"]
    words += ["--no-twin", "--no-examples", str(tmp_path)]
    both, _ = seen_in_terminal(COMMAND, words, tmp_path)
    quiet, seen, rest = both.split("ended with 0\r\n")
    assert (quiet, rest) == ("", "")
    assert re.search(r"reading attention: +\d+%", seen)


def test_a_notebook_shows_the_bar_and_progress_false_none(gpt2_folder, story, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [
        f"import headscope as hs\nhs.classify({str(gpt2_folder)!r}, {str(story)!r}, twin=False, "
        f"examples=False, types=['delimiter'], progress={progress}); None"
        for progress in (True, False)
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    states = []

    class Client(nbclient.NotebookClient):
        """Keeps what the bar's widgets, of ipywidgets, are told."""

        def process_message(self, message, cell, number):
            states.append(message["content"].get("data", {}).get("state", {}))
            return super().process_message(message, cell, number)

    Client(notebook, timeout=240, kernel_name="python3").execute(cwd=tmp_path)
    assert [len(cell.outputs) for cell in notebook.cells] == [1, 0]
    told = " ".join(str(state.get("value")) for state in states).replace("\u2007", " ")
    assert "loading the model" in told
    assert "reading attention: " in told
    (most,) = (state["max"] for state in states if state.get("max", 1.0) != 1.0)
    done = [state["value"] for state in states if isinstance(state.get("value"), float)]
    assert 1 < max(done) <= most


def test_a_stand_in_for_a_notebooks_kernel_is_one_who_waits(monkeypatch, capsys):
    def shown() -> str:
        with progress_bar(True, "counting") as bar:
            bar(1, 2)
        return capsys.readouterr().err

    assert shown() == ""
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(config={}))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    assert shown() == ""  # IPython in a terminal whose stderr is piped is no notebook
    monkeypatch.setitem(sys.modules, "ipykernel.zmqshell", SimpleNamespace())
    assert "counting" in shown()


def test_there_may_be_no_standard_error_at_all(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_bar(True) as bar:
        bar(1, 2)


def test_progress_is_what_it_may_be(gpt2_folder):
    with pytest.raises(
        ArgumentError, match="progress is 3; it should be a valid boolean or callable"
    ):
        hs.classify(str(gpt2_folder), progress=3)


def test_lines_stand_above_a_bar_and_the_bar_comes_back(monkeypatch):
    terminal = in_terminal(monkeypatch)
    from headscope.cli.terminal import warn

    with progress_bar(True, "counting", loads=True) as bar:
        bar(1, 2)
        warn("a line")
        bar(2, 2)
    cleared = terminal.getvalue().split("a line\n")
    assert len(cleared) == 2
    assert cleared[0].rsplit("\r", 1)[-1].strip() == ""  # the bar's own line is empty by then
    assert "counting" in cleared[1]


# every study


@pytest.fixture(scope="module")
def run_folder(gpt2_folder, story, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("progress") / "run"
    hs.classify(str(gpt2_folder), story, out=folder, progress=False, **SMALL)
    return folder


def _pattern_run(**how):
    import numpy as np

    previous = np.eye(9, k=-1)
    previous[0, 0] = 1
    return hs.score_patterns(previous[None, None], None, ["<s>", *"abcdefgh"], **how)


def with_a_tag(folder: str) -> hs.Run:
    """The run, one of whose heads looks at punctuation."""
    run = hs.load(folder)
    own = run.evidence[["layer", "head", "relation"]].astype(str).agg("/".join, axis=1)
    run.evidence["tagged"] = own == "0/0/punctuation"
    run.heads.loc["L0H0", ["primary", "tags"]] = "delimiter"
    return run


LANGUAGES = ["ar", "en", "ja"]
STUDIES = {
    "ablate": lambda run, model, text, out, **how: hs.ablate(
        with_a_tag(run), only="edges", queries=2, **how
    ),
    "classify": lambda run, model, text, out, **how: hs.classify(model, text, **SMALL, **how),
    "collapse": lambda run, model, text, out, **how: hs.collapse(model, text, **how),
    "compare": lambda run, model, text, out, **how: hs.compare(run, run, **how),
    "explain": lambda run, model, text, out, **how: hs.explain(
        model, text, windows=8, **how
    ),
    "function_vectors": lambda run, model, text, out, **how: hs.function_vectors(
        model, tasks="plural,past", prompts=6, shots=2, **how
    ),
    "gallery": lambda run, model, text, out, **how: hs.gallery(run, out=out, light=True, **how),
    "headvis": lambda run, model, text, out, **how: hs.headvis(
        run, out, heads="L0H0", sequences=3, **how
    ),
    "languages": lambda run, model, text, out, **how: hs.languages(
        model, save_treebanks(out.parent / "pud", LANGUAGES, documents=12), out=out,
        max_tokens=6_000, twin=False, examples=False, types=["positional"], **how,
    ),
    "patch": lambda run, model, text, out, **how: hs.patch(
        run, clean="x1z", corrupt="x2z", heads="L0H0", edges=2, **how
    ),
    "prune": lambda run, model, text, out, **how: hs.prune(model, text, max_tokens=600, **how),
    "redundancy": lambda run, model, text, out, **how: hs.redundancy(
        run, windows=2, queries=2, **how
    ),
    "score_patterns": lambda run, model, text, out, **how: _pattern_run(**how),
    "sweep": lambda run, model, text, out, **how: hs.sweep(
        models=[model], corpora=[[str(text)]], out=out, **SMALL, **how
    ),
    "weights": lambda run, model, text, out, **how: hs.weights(model, **how),
    "why": lambda run, model, text, out, **how: hs.why(
        model, ["L0H0"], text, max_tokens=600, types=["positional"], **how
    ),
}  # fmt: skip
"""A small call of each; None of those that take long."""
INSTANT = {"anatomy", "emergence", "load", "verify", "windows"}
"""Functions that read a folder or a text, and run nothing."""


def studies_of_the_package() -> set[str]:
    """Public functions that give back a study, a run, or where a site lies."""
    import inspect

    found = set()
    for name in hs.__all__:
        value = getattr(hs, name)
        if inspect.isfunction(value):
            kind = str(inspect.signature(value).return_annotation)
            result = getattr(hs, kind, None)
            known = isinstance(result, type) and issubclass(result, hs.StudyResult | hs.Run)
            if known or "progress" in inspect.signature(value).parameters:
                found.add(name)
    return found - INSTANT


def test_every_study_takes_progress_and_shows_a_bar_unless_it_is_off():
    import inspect

    assert studies_of_the_package() == set(STUDIES)
    for name in STUDIES:
        parameters = inspect.signature(getattr(hs, name)).parameters
        if "progress" in parameters:
            assert parameters["progress"].default is True, name
        else:
            assert any(each.kind is each.VAR_KEYWORD for each in parameters.values()), name


def locate_with_a_bar(*arguments, **how):
    """A model's folder, which the hub's client fetches with a bar of its own if it may."""
    if are_bars_wanted():
        sys.stderr.write("the hub's bar")
    return locate(*arguments, **how)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "languages"))
        for name, call in STUDIES.items()
        if call
    ],
)
def test_a_study_shows_its_bar_in_a_terminal_and_none_when_it_is_off(
    name, run_folder, gpt2_folder, story, tmp_path, monkeypatch
):
    terminal = in_terminal(monkeypatch)
    monkeypatch.setattr(module, "QUIET_SECONDS", 0)
    monkeypatch.setattr(load, "locate", locate_with_a_bar)
    call = STUDIES[name]
    call(str(run_folder), str(gpt2_folder), story, tmp_path / "off", progress=False)
    assert terminal.getvalue() == ""
    call(str(run_folder), str(gpt2_folder), story, tmp_path / "on", progress=True)
    assert re.search(r"[a-z]+: +\d+%", terminal.getvalue()) or "100%" in terminal.getvalue()
    amounts: list[tuple[int, int]] = []
    call(
        str(run_folder), str(gpt2_folder), story, tmp_path / "function",
        progress=lambda done, total: amounts.append((done, total)),
    )  # fmt: skip
    assert amounts
    assert all(0 <= done <= total for done, total in amounts)


def test_runs_to_come_count_like_the_last_one():
    seen: list[tuple[int, int]] = []
    runs = RunSteps(lambda done, total: seen.append((done, total)), 3)
    for run, tokens in enumerate((10, 30, 20)):
        runs.of(run)(tokens, tokens)
    assert seen == [(10, 30), (40, 70), (60, 60)]
