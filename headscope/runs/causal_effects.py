"""A run's table of causes, `causal.csv`: kept beside its evidence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.runs.folder import CAUSES
from headscope.runs.tables import read_beside
from headscope.statistics.causes import (
    BEHAVIOURS,
    BREAKS,
    CAUSE_COLUMNS,
    FIRST_CAUSE_COLUMNS,
    NO_CAUSE,
    UNTESTED,
    VERDICTS,
)

_KINDS = {
    **dict.fromkeys(("kind", "type", "heads", "behaviour", "how", "relation", "verdict"), "str"),
    **dict.fromkeys(("layer", "head", "n"), "Int64"),  # alone can be missing
    "agrees": "bool",
}
_MEASURED = ["clean", "ablated", "effect", "ci_low", "ci_high"]


def read_causes(folder: Path) -> pd.DataFrame | None:
    """The table of a run folder; None where `headscope ablate` has not been run.

    Raises:
        RunError: the file is no such table, no regular file, or lies elsewhere.
    """
    first = CAUSE_COLUMNS[:FIRST_CAUSE_COLUMNS]
    try:
        table = read_beside(folder, CAUSES, CAUSE_COLUMNS, _KINDS)
    except RunError:
        table = read_beside(folder, CAUSES, first, {k: v for k, v in _KINDS.items() if k in first})
    if table is None:
        return None
    path = folder / CAUSES
    if unknown := sorted(set(table["behaviour"].astype(str)) - set(BEHAVIOURS)):
        raise RunError(f"{path}: this table is damaged: no behaviour is called {unknown[0]!r:.60}")
    if "verdict" not in table:  # an older headscope
        words = np.where(table["agrees"], BREAKS, NO_CAUSE)
        verdict = np.where(table["behaviour"] == "away", "", words)
        table = table.assign(relation="", verdict=verdict).reindex(columns=CAUSE_COLUMNS)
    words = table["verdict"].astype(str).str.split(":").str[0]
    if unknown := sorted(set(words) - {*VERDICTS, ""}):
        raise RunError(f"{path}: this table is damaged: {unknown[0]!r:.60} is no verdict")
    measured = table.loc[words != UNTESTED, _MEASURED]
    if not np.isfinite(measured.to_numpy(float)).all():
        raise RunError(f"{path}: this table is damaged: an effect is no finite number")
    return table
