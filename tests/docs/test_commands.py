"""Every command in a code block of the documentation is one that headscope has, options too."""

from __future__ import annotations

import re
import shlex

import pytest

from headscope.cli.app import all_commands
from tests.helpers.pages import PAGES, PROJECT

BLOCK = re.compile(r"^```shell\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = all_commands()


def commands_of(name: str) -> list[list[str]]:
    """The words of each call of headscope in the code blocks of a page."""
    blocks = BLOCK.findall((PROJECT / name).read_text(encoding="utf-8"))
    calls = []
    for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
        # a line may call several programs
        for call in re.split(r" && | \| |; ", line):
            words = shlex.split(call, comments=True)
            if words[:1] == ["headscope"]:
                calls.append(words[1:])
    return calls


@pytest.mark.parametrize("name", [name for name in PAGES if commands_of(name)])
def test_every_command_of_a_page_is_there_with_its_options(name):
    for words in commands_of(name):
        key = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
        # parses as the shell would, with types and required arguments, and runs nothing
        COMMANDS[key].make_context(
            " ".join(key), words[len(key) :], help_option_names=["-h", "--help"]
        )
