"""A run's `keys_from.csv`: whose writes each head's keys read most, kept beside its evidence."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from headscope.errors import RunError
from headscope.heads import HeadNames, head_name
from headscope.runs.folder import KEYS_FROM
from headscope.runs.tables import read_beside
from headscope.statistics.columns import KEYS_FROM_COLUMNS

_KINDS = {"layer": "int64", "head": "int64", "k_from": "str"}


def read_keys_from(folder: Path, heads: pd.DataFrame, head_names: HeadNames) -> pd.DataFrame | None:
    """The table of a run folder; None before `headscope study weights --keep`.

    Args:
        folder: of the run.
        heads: the run's, with `layer` and `head`.
        head_names: how the run's heads are called.

    Raises:
        RunError: the file is no such table, no regular file, lies elsewhere, or names heads that
            the run does not have.
    """
    table = read_beside(folder, KEYS_FROM, KEYS_FROM_COLUMNS, _KINDS)
    if table is None:
        return None
    known = {head_name(row.layer, row.head, head_names): row.layer for row in heads.itertuples()}
    for row in table.itertuples():
        name = head_name(row.layer, row.head, head_names)
        if name not in known:
            raise RunError(f"{folder / KEYS_FROM}: this table is damaged: the run has no {name}")
        if row.k_from and not known.get(row.k_from, row.layer) < row.layer:
            raise RunError(
                f"{folder / KEYS_FROM}: this table is damaged: {row.k_from!r:.40} is no head of an "
                f"earlier layer than {name}'s"
            )
    return table
