"""A run's table of effects, `effects.csv`: what heads write."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.runs.folder import EFFECTS
from headscope.runs.tables import read_beside
from headscope.statistics.columns import EFFECT_COLUMNS
from headscope.statistics.write_tags import effect_ids

_KINDS = {
    **dict.fromkeys(("type", "effect"), "str"),
    **dict.fromkeys(("layer", "head", "n"), "int64"),
    "tagged": "bool",
}


def read_effects(folder: Path, known: Collection[str]) -> pd.DataFrame | None:
    """The table of a run folder; None where what its heads write was not measured.

    Args:
        folder: of the run.
        known: the effects that `run.json` describes.

    Raises:
        RunError: the file is no such table, no regular file, or lies elsewhere.
    """
    table = read_beside(folder, EFFECTS, EFFECT_COLUMNS, _KINDS)
    if table is None:
        return None
    path = folder / EFFECTS
    if unknown := sorted(set(effect_ids(table)) - set(known)):
        raise RunError(f"{path}: this table is damaged: no effect is called {unknown[0]!r:.60}")
    if not np.isfinite(table[["on", "control", "lift"]].to_numpy(float)).all():
        raise RunError(f"{path}: this table is damaged: an effect is no finite number")
    return table
