"""The edges of the command line: its names, its version, help, completion, capitals, encodings."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version as installed

import pytest
from typer.testing import CliRunner

import headscope
from headscope import cli
from headscope.cli.app import WORDS
from headscope.cli.shell_options import complete_types

GROUPS = sorted({words[:1] for words in WORDS.values() if len(words) > 1})
VERSION = installed("headscope")


def told(*arguments: object, **more: object):
    return CliRunner().invoke(cli.app, list(map(str, arguments)), **more)


@pytest.mark.parametrize("command", [(), *GROUPS, *WORDS.values()], ids=" ".join)
def test_h_is_help_everywhere(command):
    given = list(command)
    short = told(*given, "-h")
    assert short.exit_code == 0
    assert "Usage:" in short.stdout
    assert short.stdout == told(*given, "--help").stdout


def test_the_module_is_the_command_and_both_say_the_version():
    done = subprocess.run(
        [sys.executable, "-m", "headscope", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"headscope {VERSION}\n"
    assert headscope.__version__ == VERSION
    assert "__version__" in dir(headscope)


def test_help_and_completion_name_the_head_types_that_there_are():
    types = headscope.head_types()
    help_text = " ".join(told("classify", "--help").stdout.replace("│", " ").split())
    for name, head_type in types.items():
        _, _, after = help_text.partition("all but ")
        assert (name in after.partition(".")[0].split(", ")) == head_type.on_request, name
    assert complete_types("") == [*types, "all"]
    assert complete_types("sink,ta") == []
    assert complete_types("sink,te") == ["sink,tense"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("classify mini --maxtokens 5", "--max-tokens"),
        ("classify mini --tipes positional", "--types"),
        ("classify mini --Dtype auto", "--dtype"),
        ("classify mini --dt auto", "--dtype"),
        ("classify mini --max 5", "--max-tokens or --max-length"),
        ("task mini ioi --prompt 4", "--prompts"),
        ("--verison", "--version"),
        ("heads atlas:mini --formt=csv", "--format"),
    ],
)
def test_a_mistyped_option_is_refused_with_the_nearest_alone(words, meant):
    done = told(*words.split(), env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert f"(is {meant} meant?)" in done.stderr


def test_an_option_that_is_near_to_none_is_refused_without_another():
    done = told("classify", "mini", "--nonsense")
    assert done.exit_code == 2
    assert "--nonsense" in done.stderr
    assert "meant" not in done.stderr
    assert "Possible" not in done.stderr


@pytest.mark.parametrize(
    "words",
    ["task mini ioi --metric diff", "classify mini --dtype diff", "heads mini --format diff"],
)
def test_a_value_that_is_no_choice_is_refused_without_the_words_of_pydantic(words):
    done = told(*words.split(), env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert ": 'diff' is not one of" in done.stderr
