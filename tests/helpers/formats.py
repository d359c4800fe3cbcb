"""The columns that the page on files and columns and the declarations of studies promise."""

from __future__ import annotations

import re
from pathlib import Path

from headscope.studies.study_table import STUDIES, imported

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "columns.md").read_text(encoding="utf-8")
_SECTION = re.compile(
    r"^#{2,4} (?:`([^`]+)`|Common columns)\n(.*?)(?=^#{2,4} |\Z)", flags=re.MULTILINE | re.DOTALL
)
_ROW = re.compile(r"^\| (`[^|]+`) \| (.*?) \| (.*?) \|$", flags=re.MULTILINE)


def _rows_of(section: str) -> list[tuple[str, str, str]]:
    """A row for each column of a section; several columns can share a line of the page."""
    rows = []
    for names, unit, meaning in _ROW.findall(section):
        rows += [(name, unit, meaning) for name in re.findall(r"`([^`]+)`", names)]
    return rows


ROWS = {name: _rows_of(text) for name, text in _SECTION.findall(PAGE)}
"""Table to the rows of column, range and meaning in its section; the common columns as ''."""
_ORDER = {
    name: re.findall(r"`([^`]+)`", order[1])
    for name, text in _SECTION.findall(PAGE)
    if (order := re.search(r"^Columns: (.*)$", text, flags=re.MULTILINE))
}
"""Table to the columns that its section lists in order."""


def _described(table: str) -> list[tuple[str, str, str]]:
    """Rows of all columns of a table, in order; its own section has precedence."""
    rows = {row[0]: row for row in (*ROWS[""], *ROWS[table])}
    return [rows[column] for column in _ORDER[table]]


DESCRIBED = {"run.json": ROWS["run.json"]}
DESCRIBED |= {table: _described(table) for table in _ORDER}
DESCRIBED |= {row.name: imported(row.function).study.columns for row in STUDIES}
"""Table, or study, to rows of column, range and meaning."""


def columns_of(table: str) -> list[str]:
    """The columns that the page names of a table, in order."""
    return [name for name, _, _ in DESCRIBED[table]]


HEADS_BEFORE_EXPLAIN = [
    name for name in columns_of("heads.csv") if name not in ("explained", "feature_model")
]
"""The columns of a run's heads.csv before `headscope explain` has added its own."""
