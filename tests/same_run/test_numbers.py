"""The comparison itself: it must see what differs, and pass what is only rounded."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save_file

from tests.same_run import numbers
from tests.same_run.cases import CASES
from tests.same_run.check import CHECKSUMS, KEPT
from tests.same_run.numbers import columns_of, differences, unequal_bytes


@pytest.fixture
def table(tmp_path: Path) -> Path:
    pd.DataFrame({"head": ["L0H1", "L1H0"], "mass": [0.25, np.nan]}).to_csv(
        tmp_path / "heads.csv", index=False
    )
    return tmp_path


def test_a_table_is_the_same_as_itself_and_a_missing_number_as_a_missing_one(table):
    columns = columns_of(table, ("*.csv",))
    assert set(columns) == {"heads.csv:head", "heads.csv:mass"}
    assert differences(columns, columns_of(table, ("*.csv",))) == []


@pytest.mark.parametrize(
    ("column", "values", "word"),
    [
        ("mass", [0.250001, np.nan], ""),
        ("mass", [0.25001, np.nan], "0.25001"),
        ("mass", [0.25, 0.0], "row 1"),
        ("mass", [0.25], "shape"),
        ("head", ["L0H1", "L1H2"], "L1H2"),
        ("lift", [1.0, 2.0], "missing"),
    ],
)
def test_another_number_word_length_or_name_is_a_difference_and_rounding_is_none(
    table, column, values, word
):
    expected = columns_of(table, ("*.csv",))
    came = {**expected, f"heads.csv:{column}": np.array(values)}
    if column == "lift":
        came = {**expected}
        expected = {**expected, "heads.csv:lift": np.array(values)}
    lines = differences(expected, came)
    assert (word in lines[0] and len(lines) == 1) if word else not lines


def test_a_renamed_column_is_compared_under_its_new_name(table, monkeypatch):
    monkeypatch.setattr(numbers, "RENAMED", {"heads.csv:mass": "heads.csv:share"})
    expected = columns_of(table, ("*.csv",))
    came = {
        "heads.csv:head": expected["heads.csv:head"],
        "heads.csv:share": np.array([0.5, np.nan]),
    }
    assert differences(expected, came) == [
        "heads.csv:share differs in 1 of 2 rows, first in row 0: 0.5, expected 0.25"
    ]


def test_sums_in_another_order_differ_in_bytes_alone(tmp_path):
    tensor = np.full((2, 3, 4), 0.1)
    save_file({"mass": tensor}, tmp_path / "tally.safetensors")
    expected = columns_of(tmp_path, ("*.safetensors",))
    save_file({"mass": np.nextafter(tensor, 1)}, tmp_path / "tally.safetensors")
    came = columns_of(tmp_path, ("*.safetensors",))
    assert differences(expected, came) == []
    assert unequal_bytes(expected, came) == ["tally.safetensors:sha256"]
    save_file({"mass": tensor[:, ::-1] * [[[1], [2], [1]]]}, tmp_path / "tally.safetensors")
    assert differences(expected, columns_of(tmp_path, ("*.safetensors",)))


def test_a_tensor_more_is_no_difference_and_one_less_is_one(tmp_path):
    tensors = {"mass": np.ones((2, 3)), "hits": np.ones((2, 3))}
    save_file(tensors, tmp_path / "tally.safetensors")
    expected = columns_of(tmp_path, ("*.safetensors",))
    save_file({**tensors, "rows": np.zeros(4)}, tmp_path / "tally.safetensors")
    came = columns_of(tmp_path, ("*.safetensors",))
    assert differences(expected, came) == unequal_bytes(expected, came) == []
    save_file({"mass": tensors["mass"]}, tmp_path / "tally.safetensors")
    lines = differences(expected, columns_of(tmp_path, ("*.safetensors",)))
    assert any("hits" in line or "shape" in line for line in lines)


def test_a_file_that_is_not_there_is_no_agreement(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"feature_model\.csv"):
        columns_of(tmp_path, ("feature_model.csv",))


def test_what_is_kept_has_the_checksum_that_was_kept_beside_it():
    checksums = json.loads((KEPT / CHECKSUMS).read_text(encoding="utf-8"))
    assert set(checksums) == {case.name for case in CASES}
    for name, digest in checksums.items():
        assert hashlib.sha256((KEPT / f"{name}.json.xz").read_bytes()).hexdigest() == digest
