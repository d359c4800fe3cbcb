"""A comparison for other programs: CSV and JSON."""

from __future__ import annotations

import json

import pandas as pd

from headscope.errors import RunError
from headscope.runs.tables import table_to_csv
from headscope.studies.compare.result import Comparison

TABLES = ("heads", "relations", "correlation", "depth")


def choose_table(found: Comparison, name: str | None) -> pd.DataFrame:
    """A table of a comparison; by default `heads`, or `depth` where shapes differ.

    Raises:
        RunError: runs of different shapes have no such table.
    """
    name = name or ("depth" if found.heads is None else "heads")
    table = getattr(found, name)
    if table is None:
        raise RunError(f"runs of different shapes have no table {name!r}; they have 'depth'")
    return table


def comparison_json(found: Comparison) -> str:
    """All tables as one object; those that there are not are null, and so are missing numbers."""
    tables = {}
    for name in TABLES:
        table = getattr(found, name)
        # pandas writes NaN as null
        text = "null" if table is None else table.to_json(orient="records", double_precision=6)
        tables[name] = json.loads(text)
    content = {"runs": list(found.names), "notes": list(found.notes), **tables}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def comparison_csv(found: Comparison, name: str | None) -> str:
    """One table as CSV; see `choose_table`.

    Raises:
        RunError: runs of different shapes have no such table.
    """
    return table_to_csv(choose_table(found, name))
