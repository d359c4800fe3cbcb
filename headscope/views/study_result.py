"""Result of a study: a table, a figure and notes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.errors import HeadscopeError, WriteError
from headscope.options import Overwrite, PathName, checked
from headscope.printing import one_line
from headscope.runs.folder import check_foreign
from headscope.runs.tables import table_to_csv
from headscope.runs.write import write_file
from headscope.views.terminal_tables import frame_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

ROWS = 20
"""Rows of the table that a notebook shows."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class StudyResult:
    """The result of a study: one table, at most one figure, and notes."""

    title: str
    """One line: the model and what was measured, with units."""
    table: pd.DataFrame
    """The result; the study's function describes its rows and columns."""
    notes: Sequence[str] = ()
    """Limits of this result, such as a text that is too short for intervals."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that describe the whole table, by name; part of the JSON."""
    terminal_table: pd.DataFrame | None = None
    """The rows and columns that a terminal shows, if not the whole table."""
    draw: Callable[[StudyResult], Figure] | None = None
    """Draws the figure."""

    def __post_init__(self) -> None:
        # an empty table would replace an earlier one that has rows
        if self.table.empty:
            raise HeadscopeError(f"{self.title:.200}: the table has no rows; nothing was written")

    def figure(self) -> Figure:
        """The result as a matplotlib figure.

        Raises:
            HeadscopeError: this study has no figure, or matplotlib is not installed.
        """
        if self.draw is None:
            raise HeadscopeError("this study has no figure; .table is a pandas DataFrame")
        return self.draw(self)

    def csv(self) -> str:
        """The table as CSV, the text that `save` writes."""
        return table_to_csv(self.table)

    @checked
    def save(self, path: PathName, *, overwrite: Overwrite = False) -> Path:
        """Write the table to a .csv file, whole or not at all.

        Raises:
            WriteError: another suffix, a file that is there already, or one of a run.
        """
        target = check_table_file(Path(path))
        return write_file(target, self.csv(), overwrite=overwrite)

    def json(self) -> str:
        """Values, notes and the table's rows as a JSON object; NaN becomes null."""
        values = {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in self.values.items()
        }
        rows = json.loads(self.table.to_json(orient="records", double_precision=6))
        content = {"title": self.title, **values, "notes": list(self.notes), "table": rows}
        return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @property
    def printed_table(self) -> pd.DataFrame:
        """Rows and columns that a terminal shows."""
        return self.table if self.terminal_table is None else self.terminal_table

    def lines(self) -> RenderableType:
        """Title, table and notes for the terminal."""
        from rich.console import Group
        from rich.text import Text

        # without rows a table would be a header alone
        rows: list[RenderableType] = []
        if not self.printed_table.empty:
            rows = [Text(), frame_table(self.printed_table)]
        return Group(
            Text(one_line(self.title), style="bold"),
            *rows,
            *(Text(f"note: {one_line(note)}", style="yellow") for note in self.notes),
        )

    def __repr__(self) -> str:
        return f"<{self.title}>"

    def _repr_html_(self) -> str:
        """The first and the last rows of the table, for a notebook."""
        return str(self.table.to_html(max_rows=ROWS, show_dimensions=True))


def check_table_file(target: Path) -> Path:
    """The file, if a table may be written there.

    Raises:
        WriteError: another suffix than .csv, or a file of a run.
    """
    if target.suffix.lower() != ".csv":
        raise WriteError(
            f"{target!s:.200}: a table is written as .csv; for another format take .table, "
            "a pandas DataFrame, and for a picture .figure().savefig"
        )
    check_foreign(target)
    return target
