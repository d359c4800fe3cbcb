"""Text of `--help`: groups in order, and an example that each command accepts."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from headscope.cli import app
from headscope.cli.app import WORDS
from headscope.studies.study_table import GROUPS, TOP
from tests.helpers.studies import COMMANDS, ROOT


def examples(command: Any) -> list[str]:
    """The lines of a command's last words that can be typed."""
    lines = [line.strip() for line in (command.epilog or "").split("\n")]
    return [line for line in lines if line.startswith("headscope ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_an_example_that_it_accepts(name):
    command = COMMANDS[name]
    own = examples(command)
    assert own, f"{name} shows no example"
    for example in own:
        program, *words = shlex.split(example)
        count = len(WORDS[name])
        assert (program, *words[:count]) == ("headscope", *WORDS[name])
        # parses as the shell would, with types and required arguments, and runs nothing
        command.make_context(name, words[count:])


def test_the_first_help_says_where_to_start():
    assert examples(ROOT)[0] == "headscope classify mini"


@pytest.mark.parametrize("words", [(), *{words[:1] for words in WORDS.values() if words[1:]}])
def test_the_help_of_a_group_fits_a_small_terminal_and_lists_each_command(words):
    shown = CliRunner().invoke(app, [*words, "-h"], prog_name="headscope").stdout.split("\n")
    assert len(shown) <= 24  # with the line of the prompt
    assert max(map(len, shown)) <= 80
    listed = {line.split()[0]: line.strip() for line in shown if line.startswith("  ")}
    names = {own[len(words)] for own in WORDS.values() if own[: len(words)] == words}
    assert set(listed) == names
    for name, own in WORDS.items():
        if own[: len(words)] == words and len(own) == len(words) + 1:
            assert COMMANDS[name].short_help in listed[own[-1]]


def test_classify_lists_ten_options_and_the_others_on_request():
    shown = [CliRunner().invoke(app, ["classify", flag]).stdout for flag in ("-h", "--help-all")]
    names = {name for parameter in COMMANDS["classify"].params for name in parameter.opts}
    options = {name for name in names if name.startswith("--")}
    short, long = (options & {*text.split()} for text in shown)
    assert len(short) == 9  # and --help
    assert long == options


def test_ten_commands_stand_at_the_top_and_the_others_in_groups():
    top = [words for words in WORDS.values() if len(words) == 1]
    assert len(top) == 10
    assert {words[0] for words in WORDS.values() if len(words) == 2} == set(GROUPS) - {TOP}
    assert CliRunner().invoke(app, []).stdout == CliRunner().invoke(app, ["-h"]).stdout
