"""Text of `--help`: groups in order, and an example that each command accepts."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from headscope.cli.app import WORDS, app
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
        command.make_context(name, words[count:], help_option_names=["-h", "--help"])


@pytest.mark.parametrize("width", [60, 80, 140])
@pytest.mark.parametrize("words", WORDS.values(), ids=" ".join)
def test_help_fits_the_terminal_fills_it_and_writes_values_in_one_way(words, width):
    done = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width)})
    lines = done.stdout.rstrip().split("\n")
    assert max(map(len, lines)) <= width
    assert not re.search(r"[<{](str|int|float|bool|path|list|\w+\|)|[a-z]\}", done.stdout)
    # the prose between the usage and the first frame: the next line's first word had no room
    start = next(at for at, line in enumerate(lines) if "Usage:" in line)
    end = next(at for at, line in enumerate(lines) if line.startswith("╭"))
    for line, following in pairwise(line.strip() for line in lines[start + 1 : end]):
        if line and following and not following.startswith("- "):
            assert len(f" {line} {following.split()[0]} ") > width
