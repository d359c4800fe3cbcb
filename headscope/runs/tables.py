"""The tables of a run, and how they are written as CSV and read back."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headscope.heads import head_name
from headscope.statistics.causes import CAUSE_COLUMNS
from headscope.statistics.columns import (
    BELOW_BASELINE,
    BEYOND_COLUMNS,
    EFFECT_COLUMNS,
    EVIDENCE_COLUMNS,
    EXPLAINED_COLUMNS,
    FEATURE_MODEL_COLUMNS,
    GENERAL,
    HEAD_COLUMNS,
    NEWEST_COLUMNS,
    PRELIMINARY,
    REPLICATES,
    SCORE_COLUMNS,
    TEXT_VERDICT,
)

NAME = "name"
"""Column of the heads' names, such as `L5H1`."""


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """A table in a run folder."""

    file: str
    """Name of the file in the run folder."""
    attribute: str
    """Attribute of `Result` that holds the table; None there if the run has no such table."""
    columns: list[str]
    """Columns, in order."""
    kinds: Mapping[str, str]
    """Kinds of the columns that hold no fraction; texts are never missing."""
    later_columns: tuple[str, ...] = ()
    """Columns at the end that a study, or a later version, adds."""
    added_columns: tuple[str, ...] = ()
    """Columns that files of version 0.2.0 lack; the table that is read lacks them too."""
    former_columns: tuple[str, ...] = ()
    """Columns that only files of version 0.2.0 have; the table that is read lacks them."""
    newest_columns: tuple[str, ...] = ()
    """Columns that files of earlier runs lack; in the table that is read they are missing values,
    or empty texts."""
    is_named: bool = False
    """True if the file begins with a column of the heads' names. It is the index of the table in
    memory, and files of earlier versions lack it."""

    def with_names(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows as they are written, with a name before each if the table has names."""
        if not self.is_named:
            return rows
        written = rows.copy()
        written.insert(0, NAME, _names(rows))
        return written

    def csv(self, rows: pd.DataFrame) -> str:
        """The rows as the text of the file."""
        return table_to_csv(self.with_names(rows))

    def read(self, content: bytes) -> pd.DataFrame:
        """The table of a run folder.

        Raises:
            ValueError: another table, or a cell that is not what its column holds.
        """
        columns = [*self.columns, *self.later_columns]
        kinds = {name: self.kinds.get(name, "float64") for name in columns}
        # a relation may be called "1", "null" or "NA": only numbers can be missing
        missing = {name: "" for name, kind in kinds.items() if kind != "str"}
        table = pd.read_csv(
            io.BytesIO(content),
            dtype={**kinds, NAME: "str"},
            keep_default_na=False,
            na_values=missing,
        )
        # names are for readers; layer and head count
        if self.is_named and list(table.columns[:1]) == [NAME]:
            names = table.pop(NAME)
            if names.tolist() != _names(table):
                raise ValueError(f"the column {NAME} names other heads than layer and head")
        # a file of an earlier run lacks all of the newest columns, an altered one some of them
        if not {*self.newest_columns} & {*table.columns}:
            for name in self.newest_columns:
                table[name] = "" if kinds[name] == "str" else np.nan
            in_order = [name for name in columns if name in table.columns]
            if len(in_order) == len(table.columns):
                table = table[in_order]
        # columns of an earlier version are left out
        if set(table.columns) in (self._former(self.columns), self._former(columns)):
            return table.drop(columns=list(self.former_columns))
        if list(table.columns) not in (self.columns, columns):
            raise ValueError(
                f"the columns are {', '.join(table.columns)!s:.400}, expected "
                f"{', '.join(self.columns)}"
            )
        return table

    def _former(self, names: list[str]) -> set[str]:
        """Columns of version 0.2.0."""
        return {*names, *self.former_columns} - {*self.added_columns}


_KINDS = {
    **dict.fromkeys(
        ("type", "relation", "primary", "tags", "shape", "reason", "feature_model"), "str"
    ),
    **dict.fromkeys(("direct_effects", "baseline", "verdict", TEXT_VERDICT, GENERAL), "str"),
    **dict.fromkeys(("layer", "head", "n", "kv_group"), "int64"),
    "tagged": "bool",
}
"""Kinds of the columns of heads and evidence that hold no fraction."""

_FORMER_SURROGATE = ("surrogate_margin", "surrogate_margin_low", "surrogate_margin_high")

HEAD_TABLE = RunTable(
    file="heads.csv",
    attribute="heads",
    columns=HEAD_COLUMNS,
    kinds={**_KINDS, PRELIMINARY: "str", BELOW_BASELINE: "str"},
    later_columns=tuple(EXPLAINED_COLUMNS),
    added_columns=(PRELIMINARY, BELOW_BASELINE, REPLICATES),
    is_named=True,
)
EVIDENCE_TABLE = RunTable(
    file="evidence.csv",
    attribute="evidence",
    columns=EVIDENCE_COLUMNS,
    kinds={**_KINDS, PRELIMINARY: "bool"},
    added_columns=(PRELIMINARY, REPLICATES, "surrogate_wrong", *BEYOND_COLUMNS),
    newest_columns=NEWEST_COLUMNS,
    former_columns=("confirmed", *_FORMER_SURROGATE),
)
EFFECT_TABLE = RunTable(
    file="effects.csv",
    attribute="effects",
    columns=EFFECT_COLUMNS,
    kinds={
        **dict.fromkeys(("type", "effect"), "str"),
        **dict.fromkeys(("layer", "head", "n"), "int64"),
        "tagged": "bool",
    },
    added_columns=(REPLICATES,),
    former_columns=("confirmed",),
)
CAUSE_TABLE = RunTable(
    file="causal.csv",
    attribute="causes",
    columns=CAUSE_COLUMNS[:-1],
    later_columns=(CAUSE_COLUMNS[-1],),
    kinds={
        **dict.fromkeys(("kind", "type", "behaviour", "how", "relation", "verdict"), "str"),
        "direction": "str",
        **dict.fromkeys(("layer", "head", "n"), "Int64"),  # alone can be missing
    },
)
FEATURE_MODEL_TABLE = RunTable(
    file="feature_model.csv",
    attribute="feature_models",
    columns=FEATURE_MODEL_COLUMNS,
    later_columns=tuple(SCORE_COLUMNS),
    kinds={
        **dict.fromkeys(("feature", "kind", "queries"), "str"),
        **dict.fromkeys(("layer", "head", "place"), "int64"),
    },
)
TABLES = (HEAD_TABLE, EVIDENCE_TABLE, EFFECT_TABLE, CAUSE_TABLE, FEATURE_MODEL_TABLE)
"""All tables that a run can have; every run has the first two."""


def _names(rows: pd.DataFrame) -> list[str]:
    """The name of the head of each row."""
    layers_and_heads = zip(rows["layer"].tolist(), rows["head"].tolist(), strict=True)
    return [head_name(layer, head) for layer, head in layers_and_heads]


def write_rows(rows: pd.DataFrame, format: str) -> str:
    """A table as `csv` or `json` (a list of objects)."""
    if format == "csv":
        return table_to_csv(rows)
    return str(rows.to_json(orient="records", indent=1, force_ascii=False)) + "\n"


def table_to_csv(table: pd.DataFrame) -> str:
    """A table as CSV, with six digits of each fraction."""
    return str(table.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
