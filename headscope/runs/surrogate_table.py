"""A run's table of rules, `rules.csv`: what each head does, kept beside its evidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.runs.folder import RULES
from headscope.runs.tables import read_beside
from headscope.statistics.columns import RULE_COLUMNS

_KINDS = {
    **dict.fromkeys(("feature", "kind", "queries"), "str"),
    **dict.fromkeys(("layer", "head", "place"), "int64"),
}


def read_accounts(folder: Path) -> pd.DataFrame | None:
    """The table of a run folder; None where `headscope explain` has not been run on it.

    Raises:
        RunError: the file is no such table, no regular file, or lies elsewhere.
    """
    table = read_beside(folder, RULES, RULE_COLUMNS, _KINDS)
    if table is not None and not np.isfinite(table[["weight", "unique"]].to_numpy(float)).all():
        raise RunError(f"{folder / RULES}: this table is damaged: a weight is no finite number")
    return table
