"""The tables of a run as CSV: written so that a spreadsheet runs nothing, read back checked.

A cell of text that begins with = + - @, a tab or a line end would be a formula in a spreadsheet.
It is written with an apostrophe before it, which reading takes off again. Numbers stay numbers.
"""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from math import isnan
from pathlib import Path

import numpy as np
import pandas as pd

from headscope.errors import RunError
from headscope.runs.folder import RUN
from headscope.statistics.columns import (
    EVIDENCE_COLUMNS,
    EXPLAINED_COLUMNS,
    GENERAL,
    HEAD_COLUMNS,
)
from headscope.statistics.tags import NO_TYPE, VERDICTS

_TEXTS = ("rule", "writes", "baseline", "verdict", "contested_text", GENERAL)
_KINDS = {
    **dict.fromkeys(
        ("type", "relation", "primary", "tags", "shape", "reason", "writes", *_TEXTS), str
    ),
    **dict.fromkeys(("layer", "head", "n", "kv_group"), "int64"),
    "tagged": bool,
}  # all others are numbers that can be missing
_FORMAT = "%.6g"  # far below the width of any interval

# apostrophes that were there before get one more, so that reading gives back each text as it was
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_GUARDED = re.compile(r"''*[=+\-@\t\r\n]")


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


def read_evidence(path: Path) -> pd.DataFrame:
    """`evidence.csv` as it was written; see `headscope.statistics.estimates.weigh`.

    Raises:
        RunError: another table, or a cell that is not what its column holds.
    """
    evidence = _read(path, [EVIDENCE_COLUMNS])
    if unknown := sorted(set(evidence["verdict"]) - set(VERDICTS)):
        raise RunError(f"{path}: {unknown[0]!r:.100} is no verdict")
    return evidence


def read_heads(path: Path) -> pd.DataFrame:
    """`heads.csv` as it was written; see `headscope.statistics.tags.head_table`.

    One of a run that was explained has `explained` and `rule`.

    Raises:
        RunError: another table, or a cell that is not what its column holds.
    """
    return _read(path, [HEAD_COLUMNS, [*HEAD_COLUMNS, *EXPLAINED_COLUMNS]])


def check_tables(
    heads: pd.DataFrame,
    evidence: pd.DataFrame,
    relations: Collection[str],
    numbers: Sequence[int] | None = None,
) -> None:
    """The two tables speak of the same heads, and of relations that the run knows.

    Args:
        heads: a row per head.
        evidence: a row per head × relation.
        relations: that the run knows.
        numbers: of the layers that have heads; all up to the last one if None.

    Raises:
        RunError: a head is missing, double or out of place, or a type or relation is unknown.
    """
    size = len(heads)
    layers, columns = (int(heads[axis].max()) + 1 if size else 0 for axis in ("layer", "head"))
    row_of_layer = None
    if numbers is not None:
        layers, row_of_layer = len(numbers), {number: row for row, number in enumerate(numbers)}
    places = _places(heads, columns, row_of_layer)
    # products first: a layer of a billion must not become a list of a billion places
    if not size or layers * columns != size or not np.array_equal(np.sort(places), range(size)):
        raise RunError(f"{size} rows of heads do not make layers × heads, each head once")
    ids = evidence["type"] + "/" + evidence["relation"]
    if unknown := sorted(set(ids) - set(relations)):
        raise RunError(f"the evidence has a relation {unknown[0]!r:.100} that {RUN} does not have")
    known = {*evidence["type"], *NO_TYPE}
    tags = {*heads["primary"], *heads["tags"].str.split(";").explode()} - {""}
    if unknown := sorted(tags - known) + [""] * bool((heads["primary"] == "").any()):
        raise RunError(f"a head is tagged {unknown[0]!r:.100}, a type that the evidence has not")
    for name, cells in evidence.groupby(ids):
        if not np.array_equal(np.sort(_places(cells, columns, row_of_layer)), range(size)):
            raise RunError(f"the evidence for {name!r:.100} does not have each head once")
    if evidence.empty:
        raise RunError("there is no evidence: the table has no rows")


def _places(table: pd.DataFrame, columns: int, row_of_layer: Mapping[int, int] | None) -> list[int]:
    """The number of each head in reading order; Python's integers do not overflow."""
    layers = table["layer"].tolist()
    if row_of_layer is not None:
        layers = [row_of_layer.get(layer, -1) for layer in layers]
    pairs = zip(layers, table["head"].tolist(), strict=True)
    return [layer * columns + head if 0 <= head < columns else -1 for layer, head in pairs]


def _read(path: Path, known: Sequence[list[str]]) -> pd.DataFrame:
    """A table with the columns of one of these lists; the last list has all columns."""
    kinds = {name: _KINDS.get(name, "float64") for name in known[-1]}
    # a relation may be called "1", "null" or "NA": only numbers can be missing
    missing = {name: "" for name, kind in kinds.items() if kind == "float64"}
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
    for name in table:
        kind = kinds[name]
        if kind is str:
            table[name] = table[name].map(unguard)
        elif kind == "float64" and np.isinf(table[name]).any():
            raise RunError(f"{path}: a value of {name} is infinite")
        elif kind == "int64" and (table[name] < 0).any():
            raise RunError(f"{path}: a value of {name} is negative")
    return table


def _guard(cell: object) -> object:
    return "'" + cell if isinstance(cell, str) and _FORMULA.match(cell) else cell


def unguard(cell: str) -> str:
    """A cell of text as it was before it was written."""
    return cell[1:] if _GUARDED.match(cell) else cell
