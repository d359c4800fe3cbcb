"""Calls of every study that would work, from its row in the table of studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headscope.cli.app import WORDS, all_commands
from headscope.studies.study_table import StudyRow, imported

_ALL = all_commands()
COMMANDS: Mapping[str, Any] = {name: _ALL[words] for name, words in WORDS.items()}
"""Commands by the names of their functions, such as `atlas`."""
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: command.callback for name, command in COMMANDS.items()
}


def line(name: str, *arguments: str) -> list[str]:
    """The words of a command by its name, and its arguments."""
    return [*WORDS[name], *arguments]


def named(words: Sequence[str]) -> str:
    """The name of the command that these words call."""
    (name,) = (name for name, own in WORDS.items() if tuple(words[: len(own)]) == own)
    return name


def call_with(study: StudyRow, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a study's function takes, by the names of its arguments."""
    fields = imported(study.function).options().model_fields
    return {name: values[name] for name in fields if name in values}


def words_with(command: str, values: Mapping[str, object]) -> list[str]:
    """A command line of the values that a command takes; True stands for a flag.

    An argument that must be there and has no value is `nowhere`.
    """
    places, options = [], []
    for parameter in COMMANDS[command].params:
        if parameter.param_type_name == "argument":
            if parameter.required or parameter.name in values:
                word = str(values.get(parameter.name, "nowhere"))
                places += [word] * (2 if parameter.nargs == -1 else 1)
        elif parameter.name in values:
            value = values[parameter.name]
            options += [parameter.opts[0], *([] if value is True else [str(value)])]
    return [*places, *options]
