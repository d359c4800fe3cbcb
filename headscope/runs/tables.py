"""The tables of a run as CSV: written so that a spreadsheet runs nothing, and read back.

A cell of text that begins with = + - @, a tab or a line end would be a formula in a spreadsheet.
It is written with an apostrophe before it, which reading takes off again. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.runs.folder import CAUSES, EFFECTS, RULES
from headscope.statistics.causes import CAUSE_COLUMNS
from headscope.statistics.columns import (
    EFFECT_COLUMNS,
    EVIDENCE_COLUMNS,
    EXPLAINED_COLUMNS,
    GENERAL,
    HEAD_COLUMNS,
    RULE_COLUMNS,
)

_FORMAT = "%.6g"  # far below the width of any interval

# apostrophes that were there before get one more, so that reading gives back each text as it was
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_GUARDED = re.compile(r"''*[=+\-@\t\r\n]")


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """A table that some runs have beside their evidence."""

    file: str
    """Its name in the run folder."""
    attribute: str
    """Of `Result`, which holds it."""
    columns: list[str]
    kinds: Mapping[str, str]
    """Kinds of the columns that hold no fraction; texts are never missing."""
    title: str = ""
    """What it holds, for a message, where a study writes it."""
    study: str = ""
    """The command that writes it into the folder of a run."""
    done: str = ""
    """What that command did to the run."""
    changes_heads: bool = False
    """True if `heads.csv` gets columns with it."""

    def read(self, path: Path) -> pd.DataFrame:
        """The table of a run folder.

        Raises:
            RunError: the file is no such table.
        """
        return _read(path, [self.columns], self.kinds)


CAUSE_TABLE = RunTable(
    file=CAUSES,
    attribute="causes",
    columns=CAUSE_COLUMNS,
    kinds={
        **dict.fromkeys(("kind", "type", "behaviour", "how", "relation", "verdict"), "str"),
        **dict.fromkeys(("layer", "head", "n"), "Int64"),  # alone can be missing
    },
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
)
RUN_TABLES = (CAUSE_TABLE, RULE_TABLE, EFFECT_TABLE)

_KINDS = {
    **dict.fromkeys(("type", "relation", "primary", "tags", "shape", "reason", "rule"), "str"),
    **dict.fromkeys(("writes", "baseline", "verdict", "contested_text", GENERAL), "str"),
    **dict.fromkeys(("layer", "head", "n", "kv_group"), "int64"),
    "tagged": "bool",
}
"""Kinds of the columns of heads and evidence that hold no fraction."""


def read_evidence(path: Path) -> pd.DataFrame:
    """`evidence.csv` as it was written; see `headscope.statistics.estimates.weigh`.

    Raises:
        RunError: another table, or a cell that is not what its column holds.
    """
    return _read(path, [EVIDENCE_COLUMNS], _KINDS)


def read_heads(path: Path) -> pd.DataFrame:
    """`heads.csv` as it was written; see `headscope.statistics.tags.head_table`.

    One of a run that was explained has `explained` and `rule`.

    Raises:
        RunError: another table, or a cell that is not what its column holds.
    """
    return _read(path, [HEAD_COLUMNS, [*HEAD_COLUMNS, *EXPLAINED_COLUMNS]], _KINDS)


def table_to_csv(table: pd.DataFrame) -> str:
    """A table as CSV, every cell of text as text."""
    guarded, returns = table.copy(), False
    for column in table.columns:
        if not pd.api.types.is_numeric_dtype(table[column]):
            cells = table[column].tolist()
            if pd.api.types.is_string_dtype(table[column]):
                # tens of thousands of rows repeat a few hundred texts
                row, texts = pd.factorize(table[column], use_na_sentinel=False)
                cells = [_guard(cell) for cell in texts]
                guarded[column] = np.array([*cells, None], object)[row]
            else:  # factors would take False for 0
                guarded[column] = [_guard(cell) for cell in cells]
            # pandas leaves a carriage return bare, and reads it as the end of the row
            returns |= any("\r" in cell for cell in cells if isinstance(cell, str))
        elif pd.api.types.is_float_dtype(table[column]):
            # as pandas' own `float_format`, with which a table takes a third longer
            numbers = table[column].to_numpy(float, na_value=np.nan).tolist()
            digits = ["" if isnan(number) else _FORMAT % number for number in numbers]
            guarded[column] = np.array(digits, object)
    return str(
        guarded.to_csv(
            index=False,
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL,
        )
    )


def _read(path: Path, known: Sequence[list[str]], kinds: Mapping[str, str]) -> pd.DataFrame:
    """A table with the columns of one of these lists; the last list has all columns."""
    kinds = {name: kinds.get(name, "float64") for name in known[-1]}
    # a relation may be called "1", "null" or "NA": only numbers can be missing
    missing = {name: "" for name, kind in kinds.items() if kind != "str"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # cells beyond the last column
            table = pd.read_csv(
                path, dtype=kinds, keep_default_na=False, na_values=missing, index_col=False
            )
    except (OSError, ValueError, OverflowError, pd.errors.ParserWarning) as error:
        raise RunError(f"{path}: cannot be read as the table of a run: {error!s:.200}") from error
    if list(table.columns) not in known:
        raise RunError(
            f"{path}: the columns are {', '.join(table.columns)!s:.400}, expected "
            f"{', '.join(known[0])}"
        )
    for name in (name for name in table if kinds[name] == "str"):
        table[name] = table[name].map(_unguard)
    return table


def _guard(cell: object) -> object:
    return "'" + cell if isinstance(cell, str) and _FORMULA.match(cell) else cell


def _unguard(cell: str) -> str:
    """A cell of text as it was before it was written."""
    return cell[1:] if _GUARDED.match(cell) else cell
