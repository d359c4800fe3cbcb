"""Tables that some runs have beside their evidence: a row of `RUN_TABLES` each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.runs.folder import CAUSES, EFFECTS, RULES, readable_path
from headscope.runs.tables import unguard
from headscope.statistics.causes import (
    BEHAVIOURS,
    CAUSE_COLUMNS,
    UNTESTED,
    VERDICTS,
)
from headscope.statistics.columns import EFFECT_COLUMNS, RULE_COLUMNS
from headscope.statistics.write_tags import effect_ids

Check = Callable[[pd.DataFrame, pd.DataFrame, Mapping[str, Any]], pd.DataFrame]


def _as_it_is(table: pd.DataFrame, heads: pd.DataFrame, info: Mapping[str, Any]) -> pd.DataFrame:
    return table


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """A table of a run that not every run has."""

    file: str
    """Its name in the run folder."""
    attribute: str
    """Of `Result`, which holds it."""
    columns: list[str]
    """All of them, in order."""
    kinds: Mapping[str, str]
    """What columns hold where that is no fraction; only what is no text can be missing."""
    finite: list[str] = field(default_factory=list)
    """Columns of numbers that are never missing, for `fault`."""
    fault: str = ""
    """Says that one of those is no finite number."""
    check: Check = _as_it_is
    """The table, given what was read, the run's heads and its `run.json`; a ValueError says what is
    wrong with it."""
    title: str = ""
    """What it holds, for a message, where a study writes it."""
    study: str = ""
    """The command that writes it into the folder of a run."""
    done: str = ""
    """What that command did to the run."""
    changes_heads: bool = False
    """True if `heads.csv` gets columns with it."""

    def read(
        self, folder: Path, heads: pd.DataFrame, info: Mapping[str, Any]
    ) -> pd.DataFrame | None:
        """The table of a run folder; None where the run has none.

        Args:
            folder: of the run.
            heads: the run's, with `layer` and `head`.
            info: its `run.json`.

        Raises:
            RunError: the file is no such table, no regular file, or lies elsewhere.
        """
        if not os.path.lexists(folder / self.file):
            return None
        path = readable_path(folder, self.file)
        try:
            table = self._read(path)
            if not np.isfinite(table[self.finite].to_numpy(float)).all():
                raise ValueError(self.fault)
            return self.check(table, heads, info)
        except (ValueError, KeyError, TypeError, OverflowError, OSError) as error:
            raise RunError(f"{path}: this table is damaged: {error!s:.400}") from error

    def _read(self, path: Path) -> pd.DataFrame:
        columns_read = pd.read_csv(path, nrows=0).columns.tolist()
        if columns_read != self.columns:
            names = ", ".join(map(str, columns_read))
            raise ValueError(f"the columns are {names:.300}, expected {', '.join(self.columns)}")
        kinds = {name: self.kinds.get(name, "float64") for name in self.columns}
        missing = {name: "" for name, kind in kinds.items() if kind != "str"}
        table = pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=missing)
        for name in (name for name, kind in kinds.items() if kind == "str"):
            table[name] = table[name].map(unguard)
        return table


def _check_causes(
    table: pd.DataFrame, heads: pd.DataFrame, info: Mapping[str, Any]
) -> pd.DataFrame:
    if unknown := sorted(set(table["behaviour"].astype(str)) - set(BEHAVIOURS)):
        raise ValueError(f"no behaviour is called {unknown[0]!r:.60}")
    words = table["verdict"].astype(str).str.split(":").str[0]
    if unknown := sorted(set(words) - {*VERDICTS, ""}):
        raise ValueError(f"{unknown[0]!r:.60} is no verdict")
    measured = table.loc[words != UNTESTED, ["clean", "ablated", "effect", "ci_low", "ci_high"]]
    if not np.isfinite(measured.to_numpy(float)).all():
        raise ValueError("an effect is no finite number")
    return table


def _check_effects(
    table: pd.DataFrame, heads: pd.DataFrame, info: Mapping[str, Any]
) -> pd.DataFrame:
    if unknown := sorted(set(effect_ids(table)) - set(info.get("effects", {}))):
        raise ValueError(f"no effect is called {unknown[0]!r:.60}")
    return table


CAUSE_TABLE = RunTable(
    file=CAUSES,
    attribute="causes",
    columns=CAUSE_COLUMNS,
    kinds={
        **dict.fromkeys(("kind", "type", "behaviour", "how", "relation", "verdict"), "str"),
        **dict.fromkeys(("layer", "head", "n"), "Int64"),  # alone can be missing
    },
    check=_check_causes,
    title="causes",
    study="ablate",
    done="ablated",
)
RULE_TABLE = RunTable(
    file=RULES,
    attribute="accounts",
    columns=RULE_COLUMNS,
    kinds={
        **dict.fromkeys(("feature", "kind", "queries"), "str"),
        **dict.fromkeys(("layer", "head", "place"), "int64"),
    },
    finite=["weight", "unique"],
    fault="a weight is no finite number",
    title="rules",
    study="explain",
    done="explained",
    changes_heads=True,
)
EFFECT_TABLE = RunTable(
    file=EFFECTS,
    attribute="effects",
    columns=EFFECT_COLUMNS,
    kinds={
        **dict.fromkeys(("type", "effect"), "str"),
        **dict.fromkeys(("layer", "head", "n"), "int64"),
        "tagged": "bool",
    },
    finite=["on", "control", "lift"],
    fault="an effect is no finite number",
    check=_check_effects,
)
RUN_TABLES = (CAUSE_TABLE, RULE_TABLE, EFFECT_TABLE)
