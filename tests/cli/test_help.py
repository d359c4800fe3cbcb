"""Text of `--help`: groups in order, and an example that each command accepts."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from headscope.cli.app import WORDS
from tests.helpers.studies import COMMANDS


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
