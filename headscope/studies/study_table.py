"""Table of the studies: a row each, which the command line, the pages and the tests read.

A study declares its row in its own file. The table is read from an index of these declarations, so
that `headscope --help` imports no study.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

TOP, DRAW, EXPORT, SWEEP, STUDY, CHECK = "top", "draw", "export", "sweep", "study", "check"
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        TOP: "Classify and explain heads.",
        DRAW: "Draw figures for papers.",
        EXPORT: "Export runs as a site or for other programs.",
        SWEEP: "Classify many models, revisions, corpora or languages.",
        STUDY: "Study a model: weights, size, redundancy, pruning, patching.",
        CHECK: "List or download models.",
    }
)
"""Groups of commands, and what their commands are for; those of `TOP` have no group name."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """The command of a study."""

    group: str
    """Group of the command in `GROUPS`."""
    name: str = ""
    """Name within its group, if it differs from the function's."""
    summary: str
    """Effect in the imperative, in less than a line."""
    examples: tuple[str, ...]
    """Complete lines that call the command."""
    out: str = "Write the table to this .csv file."
    """Help of `--out`; empty for a command that takes none or its own."""
    figure: str = "Draw it: a .png, .svg or .pdf file."
    """Help of `--figure`; empty for a command that draws nothing."""


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study of a run or of a model: its function and its command."""

    name: str
    """Name of the function in Python."""
    module: str
    """Module of the function below `headscope.studies`."""
    command: Command | None = None
    """None for a study of Python alone, or one whose command has more to do than the study."""

    @property
    def function(self) -> str:
        """The function with the arguments and docstring of the command, as `module:name`."""
        return f"{self.module}:{self.name}"

    @property
    def words(self) -> str:
        """The words of the command, such as `study weights`; empty without a command."""
        if self.command is None:
            return ""
        name = self.command.name or self.name
        return name if self.command.group == TOP else f"{self.command.group} {name}"


def imported(path: str) -> Any:
    """Object that a row names, such as `prune:prune`.

    >>> imported("study_table:StudyRow").__name__
    'StudyRow'
    """
    name, module = home(path)
    return getattr(import_module(module), name)


def home(path: str) -> tuple[str, str]:
    """The name and the module of what a row names.

    >>> home("prune:prune")
    ('prune', 'headscope.studies.prune')
    """
    module, _, name = path.partition(":")
    return name, f"headscope.studies.{module}"


def read_index() -> tuple[StudyRow, ...]:
    """The rows of `studies.json`, which `docs/generate.py` writes from the files of studies."""
    rows: list[StudyRow] = []
    for row in json.loads(INDEX.read_text("utf-8")):
        declared = row.pop("command")
        command = (
            Command(**declared | {"examples": tuple(declared["examples"])}) if declared else None
        )
        rows.append(StudyRow(**row, command=command))
    return tuple(rows)


INDEX = Path(__file__).parent / "studies.json"
STUDIES = read_index()
"""Every study by the words of its command; those without a command come first."""
