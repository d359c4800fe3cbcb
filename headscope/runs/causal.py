"""A run's table of causes, `causal.csv`: kept beside its evidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.evidence.causes import BEHAVIOURS, CAUSE_COLUMNS
from headscope.runs.folder import CAUSES
from headscope.runs.tables import read_beside

_KINDS = {
    **dict.fromkeys(("kind", "type", "heads", "behaviour", "how"), "str"),
    **dict.fromkeys(("layer", "head", "n"), "Int64"),  # alone can be missing
    "agrees": "bool",
}
_MEASURED = ["clean", "ablated", "effect", "ci_low", "ci_high"]


def read_causes(folder: Path) -> pd.DataFrame | None:
    """The table of a run folder; None where `headscope ablate` has not been run.

    Raises:
        RunError: the file is no such table, no regular file, or lies elsewhere.
    """
    table = read_beside(folder, CAUSES, CAUSE_COLUMNS, _KINDS)
    if table is None:
        return None
    path = folder / CAUSES
    if unknown := sorted(set(table["behaviour"].astype(str)) - set(BEHAVIOURS)):
        raise RunError(f"{path}: this table is damaged: no behaviour is called {unknown[0]!r:.60}")
    if not np.isfinite(table[_MEASURED].to_numpy(float)).all():
        raise RunError(f"{path}: this table is damaged: an effect is no finite number")
    return table
