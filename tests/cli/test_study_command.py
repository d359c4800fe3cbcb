"""Commands of studies take what their functions take, with the same defaults, and hand it on."""

from __future__ import annotations

import io
import json
import shutil
from functools import wraps
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from headscope.cli import app
from headscope.cli.app import all_commands
from headscope.options import A_MODEL_OR_RUN, A_RUN
from headscope.runs.folder import RunFolder
from headscope.runs.tables import CAUSE_TABLE
from headscope.studies.study_table import STUDIES, imported
from tests.helpers.shell import headscope


class CalledError(Exception):
    """The function of a study was called with these arguments."""


@pytest.fixture
def called(monkeypatch):
    """Arguments of a study's function as a command line calls it."""

    def stub(path: str) -> Any:
        @wraps(imported(path))
        def function(**arguments: Any) -> None:
            raise CalledError(arguments)

        return function

    monkeypatch.setattr("headscope.cli.study_command.imported", stub)

    def call(*words: str) -> dict[str, Any]:
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, CalledError), done.output
        return done.exception.args[0]

    return call


def test_an_option_reaches_its_function(called):
    assert called("study", "collapse", "mini", "--mixing", "--corpus", "a", "--corpus", "b") == {
        "model": "mini",
        "corpus": ["a", "b"],
        "mixing": True,
        "max_tokens": 8192,
        "device": "auto",
        "weights": False,
    }
    verified = called("verify", "runs/x", "--as", "gpt2")
    assert (verified["model"], verified["scores"]) == ("gpt2", None)
    explained = called("explain", "mini", "--features", "4")
    assert (explained["features"], explained["windows"]) == (4, 56)
    counted = called("study", "anatomy", "mini", "--context", "3")
    assert counted == {"model": "mini", "context": 3, "batch": 1}


ARGUMENTS = {
    words: command.params[0]
    for words, command in all_commands().items()
    if command.params and command.params[0].param_type_name == "argument"
}
RUNS = [words for words, argument in ARGUMENTS.items() if "run folder" in str(argument.help)]


@pytest.mark.parametrize("words", RUNS, ids=" ".join)
def test_each_command_that_takes_a_run_describes_it_in_the_same_words(words):
    text = ARGUMENTS[words].help
    assert text.startswith((f"{A_RUN}", f"{A_MODEL_OR_RUN}."))
    assert "Python" not in text


@pytest.mark.parametrize("run", ["atlas:mini", "mini", "folder"])
def test_a_table_of_causes_goes_to_a_file_if_the_run_cannot_be_written(
    run, mini_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    if run == "folder":
        shutil.copytree(mini_run, tmp_path / run)
        monkeypatch.setattr(RunFolder, "is_writable", lambda folder: False)
    options = ("--heads", "L5H1", "--only", "edges", "--queries", "20")
    if run != "folder":
        refused = headscope("ablate", run, *options)
        assert refused.returncode == 2
        assert "--out" in refused.stderr
    done = headscope("ablate", run, *options, "--out", "causes.csv")
    assert done.returncode == 0, done.stderr
    assert set(pd.read_csv("causes.csv")["head"]) == {1}
    assert not (tmp_path / run / CAUSE_TABLE.file).exists()


@pytest.mark.parametrize("command", [("classify",), ("study", "anatomy")])
@pytest.mark.parametrize("run", ["atlas:mini", "folder"])
def test_a_run_in_place_of_a_model_is_called_a_run(command, run, mini_run, tmp_path):
    given = mini_run if run == "folder" else run
    # elsewhere than in the checkout, where `make demo` writes runs/mini
    done = headscope(*command, given, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{given} is a run" in " ".join(done.stderr.split())


TABLES = {
    ("study", "anatomy", "mini"): ["table", "section"],
    ("compare", "atlas:mini", "atlas:mini"): ["table", "relation"],
    ("why", "atlas:mini", "L5H3"): ["table", "tags"],
    ("heads", "atlas:mini"): ["name"],
    ("check", "models"): ["layout"],
}
"""Commands that print a table, and keys of their JSON down to a column."""


@pytest.mark.parametrize("words", TABLES, ids=" ".join)
def test_a_table_is_printed_for_programs_too(words):
    *keys, column = TABLES[words]
    rows = json.loads(headscope(*words, "--format", "json").stdout)
    for key in keys:
        rows = rows[key]
    table = pd.read_csv(io.StringIO(headscope(*words, "--format", "csv").stdout))
    assert len(table) == len(rows) > 0
    assert column in rows[0]
    assert column in table


def test_every_command_of_a_study_has_the_formats_of_a_table():
    commands = all_commands()
    own = {("heads",), ("why",), ("classify",), ("check", "models")}
    for words in {tuple(row.words.split()) for row in STUDIES if row.command} | own:
        (option,) = [option for option in commands[words].params if option.name == "format"]
        assert option.opts == ["--format"], words
        assert option.default == "table"


def test_files_are_named_beside_a_table_for_programs(tmp_path):
    out = tmp_path / "anatomy.csv"
    done = headscope("study", "anatomy", "mini", "--out", out, "--format", "csv")
    assert done.stdout == out.read_text(encoding="utf-8")
    assert str(out) in done.stderr
