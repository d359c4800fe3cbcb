"""An anatomy, and the published shapes, for other programs: CSV and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite

import pandas as pd

from headscope.studies.anatomy.result import Anatomy
from headscope.studies.anatomy.rows import Check


def write_anatomy(anatomy: Anatomy, format: str) -> str:
    """An anatomy as `csv`, a row per number, or `json`, an object with a list per section.

    In the CSV `value` is a dimension, a size by formula, bytes, or a check's largest difference;
    `holds` says whether formula and count agree, or whether the check holds.
    """
    return anatomy.csv() if format == "csv" else _json(anatomy)


def write_published(table: pd.DataFrame, format: str) -> str:
    """The published shapes as `csv` or `json` (a list of objects)."""
    if format == "csv":
        return str(table.to_csv(index=False, lineterminator="\n"))
    return str(table.to_json(orient="records", indent=1, force_ascii=False)) + "\n"


def _json(anatomy: Anatomy) -> str:
    content = {
        "model": anatomy.model,
        "counted_from": anatomy.counted_from,
        "dimensions": asdict(anatomy.dimensions),
        "parameters": [asdict(r) | {"agrees": r.agrees} for r in anatomy.parameter_rows],
        "cache": {
            "context": anatomy.context,
            "batch": anatomy.batch,
            "dtype": anatomy.dtype,
            "sizes": [asdict(r) for r in anatomy.cache_rows],
        },
        "checks": [_check(c) for c in anatomy.checks],
        "notes": list(anatomy.notes),
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _check(check: Check) -> dict[str, object]:
    """JSON knows no NaN: a difference that is no number is null, and holds nothing."""
    finite = check.difference if isfinite(check.difference) else None
    return asdict(check) | {"difference": finite, "holds": check.holds}
