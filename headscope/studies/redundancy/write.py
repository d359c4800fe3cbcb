"""A redundancy for other programs: CSV and JSON."""

from __future__ import annotations

import json
from math import isfinite

from headscope.studies.redundancy.result import Redundancy


def write_redundancy(found: Redundancy, format: str) -> str:
    """A redundancy as `csv`, a row per head, or `json`, an object that has the groups too.

    Distances are in bits; a number that is not defined is empty, or null in JSON.
    """
    if format == "csv":
        return found.csv()
    content = {
        "model": found.model,
        "unit": "bits",
        "windows": found.windows,
        "queries": found.queries,
        "silhouette": found.silhouette if isfinite(found.silhouette) else None,
        "shown": found.shown if isfinite(found.shown) else None,
        "notes": list(found.notes),
    }
    all_tables = {"heads": found.heads, "groups": found.groups, "tests": found.tests}
    # pandas writes NaN as null
    tables = {
        name: json.loads(table.to_json(orient="records", double_precision=6))
        for name, table in all_tables.items()
    }
    return json.dumps(content | tables, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
