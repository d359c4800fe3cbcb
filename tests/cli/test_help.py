"""What `--help` says: groups in an order that helps, and an example that the command accepts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

import headscope.cli
from headscope.cli import app

GROUP = typer.main.get_command(app)
COMMANDS = GROUP.commands
PANELS = ["Measure", "Look", "Compare", "Causes"]


def examples(command: Any) -> list[str]:
    """The lines of a command's last words that can be typed."""
    lines = [line.strip() for line in (command.epilog or "").split("\n")]
    return [line for line in lines if line.startswith("headscope ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_an_example_that_it_accepts(name):
    command = COMMANDS[name]
    own = examples(command)
    assert own, f"{name} shows no example"
    for line in own:
        program, first, *arguments = shlex.split(line)
        assert (program, first) == ("headscope", name)
        # parses as the shell would, with types and required arguments, and runs nothing
        command.make_context(name, arguments)


def test_an_example_that_a_command_does_not_accept_would_be_seen():
    with pytest.raises(Exception, match="No such option: --colour"):
        COMMANDS["why"].make_context("why", ["runs/mini", "L5H1", "--colour"])


def test_every_command_stands_in_one_of_four_groups():
    panels = [command.rich_help_panel for command in COMMANDS.values()]
    assert list(dict.fromkeys(panels)) == PANELS
    assert panels == sorted(panels, key=PANELS.index)
    assert next(iter(COMMANDS)) == "classify"


def test_every_command_has_a_file_of_its_name():
    folder = Path(headscope.cli.__file__).parent
    for name, command in COMMANDS.items():
        assert (folder / f"{name}.py").is_file()
        assert command.callback is not None
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        assert f"def {name}(" in text
        assert text.count("@command(") == 1


def test_the_first_help_says_where_to_start():
    assert examples(GROUP)[0] == "headscope classify mini"
