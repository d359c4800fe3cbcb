"""A run's table of causes, `causal.csv`: kept beside its evidence."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.evidence.causes import BEHAVIOURS, CAUSE_COLUMNS
from headscope.runs.folder import CAUSES, readable
from headscope.runs.tables import unguard

_TEXT = ("kind", "type", "heads", "behaviour", "how")
_COUNTS = ("layer", "head", "n")
_MEASURED = ["clean", "ablated", "effect", "ci_low", "ci_high"]


def read_causes(folder: Path) -> pd.DataFrame | None:
    """The table of a run folder; None where `headscope ablate` has not been run.

    Raises:
        RunError: the file is no such table, no regular file, or lies elsewhere.
    """
    if not os.path.lexists(folder / CAUSES):
        return None
    path = readable(folder, CAUSES)
    kinds = dict.fromkeys(CAUSE_COLUMNS, "float64") | dict.fromkeys(_TEXT, "str")
    kinds |= dict.fromkeys(_COUNTS, "Int64") | {"agrees": "bool"}
    try:
        numbers = {name: "" for name in CAUSE_COLUMNS if name not in _TEXT}  # alone can be missing
        table = pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=numbers)
    except (ValueError, KeyError, TypeError, OverflowError, OSError) as error:
        raise RunError(f"{path}: this table is damaged: {error!s:.200}") from error
    if list(table.columns) != CAUSE_COLUMNS:
        named = ", ".join(map(str, table.columns))
        raise RunError(
            f"{path}: this table is damaged: the columns are {named:.300}, expected "
            f"{', '.join(CAUSE_COLUMNS)}"
        )
    if unknown := sorted(set(table["behaviour"].astype(str)) - set(BEHAVIOURS)):
        raise RunError(f"{path}: this table is damaged: no behaviour is called {unknown[0]!r:.60}")
    if not np.isfinite(table[_MEASURED].to_numpy(float)).all():
        raise RunError(f"{path}: this table is damaged: an effect is no finite number")
    for name in _TEXT:
        table[name] = table[name].map(unguard)
    return table
