"""The columns that the page on file formats and the declarations of studies promise."""

from __future__ import annotations

import re
from pathlib import Path

from headscope.studies.study_table import STUDIES, imported

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
_SECTION = re.compile(r"^#{2,4} `([^`]+)`.*?\n(.*?)(?=^#{2,4} |\Z)", flags=re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \| (.*?) \|$", flags=re.MULTILINE)
DESCRIBED = {name: _ROW.findall(text) for name, text in _SECTION.findall(PAGE)}
DESCRIBED |= {row.name: imported(row.function).study.columns for row in STUDIES}
"""Table, or study, to rows of column, range and meaning."""


def columns_of(table: str) -> list[str]:
    """The columns that the page names of a table, in order."""
    return [name for name, _, _ in DESCRIBED[table]]


HEADS_BEFORE_EXPLAIN = [
    name for name in columns_of("heads.csv") if name not in ("explained", "rule")
]
"""The columns of a run's heads.csv before `headscope explain` has added its own."""
