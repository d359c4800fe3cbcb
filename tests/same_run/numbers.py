"""Numbers of the files that commands write, as columns, and where two sets of them differ."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import load_file

from headscope.resolve import load

Columns = dict[str, np.ndarray]
"""Numbers or texts of each column, by `file:column`."""

TOLERANCE = 1e-6
"""Relative to the larger of two numbers, or absolute below 1: what another order of sums moves."""
PRINTED = 6
"""Digits of a table's numbers; one in the last digit is rounding."""


def columns_of(folder: Path, patterns: tuple[str, ...]) -> Columns:
    """Every column of the files that match.

    Raises:
        FileNotFoundError: none matches one of the patterns.
    """
    columns: Columns = {}
    for pattern in patterns:
        paths = sorted(path for path in folder.glob(pattern) if path.is_file())
        if not paths:
            raise FileNotFoundError(f"nothing in {folder} is called {pattern}")
        for path in paths:
            name = path.relative_to(folder).as_posix()
            columns |= {f"{name}:{column}": values for column, values in _read(path).items()}
    return columns


def _read(path: Path) -> Columns:
    if path.suffix == ".safetensors":
        return _sums(path.stem, load_file(path))
    if path.suffix == ".npz":
        return _sums("tally", load(path.parent, with_tally=True).tally.arrays())
    if path.suffix == ".json":
        return _leaves(json.loads(path.read_text(encoding="utf-8")))
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return {str(name): _plain(table[name]) for name in table.columns}


def _plain(column: pd.Series) -> np.ndarray:
    numbers = pd.to_numeric(column.replace("", "nan"), errors="coerce").to_numpy(np.float64)
    told = (column != "").to_numpy()
    if told.any() and not np.isnan(numbers[told]).any():
        return numbers
    return column.to_numpy(dtype=np.str_)


def _sums(stem: str, arrays: Mapping[str, np.ndarray]) -> Columns:
    """The tensors' names, shapes, sums and checksums; of the run's sums those of each relation."""
    tensors = dict(sorted(arrays.items()))
    if stem == "examples":
        tensors = {name: _square(tensor) for name, tensor in tensors.items()}
    wholes = [np.nan_to_num(tensor.astype(np.float64)) for tensor in tensors.values()]
    digests = [hashlib.sha256(tensor.tobytes()).hexdigest() for tensor in tensors.values()]
    columns: Columns = {
        "name": np.array([f"{name} {tensor.shape}" for name, tensor in tensors.items()]),
        "sum": np.array([whole.sum() for whole in wholes]),
        "squares": np.array([(whole**2).sum() for whole in wholes]),
        "sha256": np.array(digests),
    }
    for name, whole in zip(tensors, wholes, strict=True):
        if stem == "tally" and whole.ndim >= 2:
            axes = (0, *range(2, whole.ndim))
            columns |= {
                f"{name}/sum": whole.sum(axis=axes),
                f"{name}/squares": (whole**2).sum(axes),
            }
    return columns


def _square(tensor: np.ndarray) -> np.ndarray:
    """A pattern whose rows were written up to the query alone, with the zeros behind it."""
    if tensor.ndim != 1:
        return tensor
    rows = np.split(tensor, np.cumsum(np.arange(1, int((2 * tensor.size) ** 0.5))))
    return np.stack([np.pad(row, (0, len(rows) - len(row))) for row in rows])


def _leaves(value: Any, at: str = "") -> Columns:
    """Every number of a JSON file by its path; provenance is of a day and a machine."""
    if isinstance(value, dict):
        columns: Columns = {}
        for name, inner in value.items():
            if name not in ("provenance", "files", "settings"):
                columns |= _leaves(inner, f"{at}/{name}")
        return columns
    numbers = value if isinstance(value, list) else [value]
    if numbers and all(isinstance(number, int | float) for number in numbers):
        return {at: np.array(numbers, dtype=np.float64)}
    return {}


def differences(expected: Columns, came: Columns) -> list[str]:
    """A line for each column that is missing or holds other numbers; none if all agree.

    Other checksums do not count if the sums agree within `TOLERANCE`, nor do new columns and
    tensors.
    """
    lines, came = [], _without_new(expected, came)
    for name, values in expected.items():
        if name.endswith(":sha256"):
            continue
        if name not in came:
            lines.append(f"{name} is missing")
        elif line := _difference(values, came[name]):
            lines.append(f"{name} {line}")
    return lines


def unequal_bytes(expected: Columns, came: Columns) -> list[str]:
    """Files of tensors that are not the same bit by bit."""
    came = _without_new(expected, came)
    return [
        name
        for name, digest in expected.items()
        if name.endswith(":sha256") and not np.array_equal(came.get(name), digest)
    ]


def _without_new(expected: Columns, came: Columns) -> Columns:
    """Columns that came, without tensors that are newer than the kept numbers."""
    kept = dict(came)
    for column, names in expected.items():
        file, _, what = column.rpartition(":")
        if what == "name" and f"{file}:sha256" in expected and column in came:
            present = np.isin(came[column], names)
            for other in ("name", "sum", "squares", "sha256"):
                kept[f"{file}:{other}"] = came[f"{file}:{other}"][present]
    return kept


def _difference(expected: np.ndarray, came: np.ndarray) -> str:
    if expected.shape != came.shape:
        return f"has the shape {came.shape}, expected {expected.shape}"
    if expected.dtype.kind == "U" or came.dtype.kind == "U":
        wrong = expected.astype(np.str_) != came.astype(np.str_)
    else:
        room = TOLERANCE * np.maximum(1, np.maximum(abs(expected), abs(came)))
        room = np.maximum(room, 1.01 * 10.0 ** (1 - PRINTED) * abs(expected))
        same = (expected == came) | (np.isnan(expected) & np.isnan(came))
        with np.errstate(invalid="ignore"):
            wrong = ~(same | (abs(expected - came) <= room))
    if not wrong.any():
        return ""
    place = int(np.flatnonzero(wrong.ravel())[0])
    return (
        f"differs in {int(wrong.sum())} of {wrong.size} rows, first in row {place}: "
        f"{came.ravel()[place]}, expected {expected.ravel()[place]}"
    )
