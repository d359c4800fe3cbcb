"""A run's table of rules, `rules.csv`: what each head does, kept beside its evidence."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.evidence.columns import RULE_COLUMNS
from headscope.runs.folder import RULES, readable
from headscope.runs.tables import unguard

_TEXT = ("feature", "kind", "queries")
_COUNTS = ("layer", "head", "place")


def read_accounts(folder: Path) -> pd.DataFrame | None:
    """The table of a run folder; None where `headscope explain` has not been run on it.

    Raises:
        RunError: the file is no such table, no regular file, or lies elsewhere.
    """
    if not os.path.lexists(folder / RULES):
        return None
    path = readable(folder, RULES)
    kinds = dict.fromkeys(RULE_COLUMNS, "float64") | dict.fromkeys(_TEXT, "str")
    kinds |= dict.fromkeys(_COUNTS, "int64")
    try:
        numbers = {name: "" for name in RULE_COLUMNS if name not in _TEXT}
        table = pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=numbers)
    except (ValueError, KeyError, TypeError, OverflowError, OSError) as error:
        raise RunError(f"{path}: this table is damaged: {error!s:.200}") from error
    if list(table.columns) != RULE_COLUMNS:
        named = ", ".join(map(str, table.columns))
        raise RunError(
            f"{path}: this table is damaged: the columns are {named:.300}, expected "
            f"{', '.join(RULE_COLUMNS)}"
        )
    if not np.isfinite(table[["weight", "unique"]].to_numpy(float)).all():
        raise RunError(f"{path}: this table is damaged: a weight is no finite number")
    for name in _TEXT:
        table[name] = table[name].map(unguard)
    return table
