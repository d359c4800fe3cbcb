"""Declaration of a study: the columns of its table, its figure, encoders, and one bad call.

`@study(…)` above the function checks its arguments and completes its docstring. The reference and
the tests read the declaration.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from headscope.options import checked
from headscope.studies.study_table import Command as Command

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.views.study_figure import Plot
    from headscope.views.study_result import StudyResult

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Column(NamedTuple):
    """A column of a table."""

    name: str
    unit: str
    """Unit and range, such as `nats, ≥ 0`."""
    meaning: str


def table_columns(text: str) -> tuple[Column, ...]:
    """Columns from lines `names | unit | meaning`; an indented line continues the line above."""
    lines = re.sub(r"\n\s+", " ", textwrap.dedent(text).strip()).split("\n")
    rows = [map(str.strip, line.split("|", 2)) for line in lines]
    return tuple(
        Column(name, unit, meaning) for names, unit, meaning in rows for name in names.split(", ")
    )


@dataclass(frozen=True, kw_only=True)
class Study:
    """Declaration of a study."""

    rows: str
    """Meaning of a row of the table."""
    columns: tuple[Column, ...]
    """Columns of the table, in order."""
    figure: Plot | None = None
    """Declaration of the figure."""
    encoders: bool = True
    """True if the study runs on encoders; other studies refuse them."""
    command: Command | None = None
    """The command; None for a study of Python alone."""
    bad_call: Mapping[str, Any]
    """Invalid arguments, for tests."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    def draw(self, result: StudyResult, table: pd.DataFrame | None = None) -> Figure:
        """The figure of a result, drawn from its table or from another one."""
        assert self.figure is not None
        return self.figure.figure(result.title, result.table if table is None else table)

    def described(self) -> str:
        """The rows and columns, as the end of a docstring."""
        lines = [
            f"{name} ({unit}): {meaning}.".replace(" ()", "")
            for name, unit, meaning in self.columns
        ]
        wrapped = [textwrap.indent(textwrap.fill(line, 92), "    ") for line in lines]
        return "\n".join([f"The table has a row per {self.rows}.", "", "Columns:", *wrapped])


def study(declaration: Study) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function a study: its arguments are checked, and its docstring lists the columns.

    The declaration is the attribute `study` of the function.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        call = checked(function)
        head, mark, tail = (call.__doc__ or "").partition("Raises:")
        call.__doc__ = f"{head.rstrip()}\n\n{declaration.described()}\n\n{mark}{tail}"
        call.__dict__["study"] = declaration
        return call

    return decorate
