"""CSV that a spreadsheet may open, read back as it was."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import headscope as hs
from headscope.runs.listing import write_heads
from headscope.runs.tables import HEAD_TABLE, table_to_csv
from headscope.statistics.columns import HEAD_COLUMNS
from tests.fuzz.folders import make_run
from tests.helpers.formats import columns_of

SOME = settings(
    max_examples=100, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
cells = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["", "'", "''"]), st.sampled_from(["", *FORMULAS]), st.text(max_size=5)),
    st.sampled_from(["=1+1", "-2", "+3", "@SUM(A1)", "\t=1", "\r=1", "'", "'=x", "a\rb", "a\r\nb", '"', ",", "NA", "1", ""]),
)  # fmt: skip


def head_rows(texts: list[str]) -> pd.DataFrame:
    rows = {name: [-0.25] * len(texts) for name in HEAD_COLUMNS}
    rows |= {name: list(texts) for name in ("primary", "tags", "relation", "shape", "reason")}
    rows |= {
        "layer": list(range(len(texts))),
        "head": [0] * len(texts),
        "kv_group": [0] * len(texts),
    }
    return pd.DataFrame(rows)[HEAD_COLUMNS]


@SOME
@given(
    st.lists(
        cells.filter(lambda text: not re.search("[\ud800-\udfff]", text)), min_size=1, max_size=5
    )
)
@example(["=1", "'=1", "''=1", "a\rb", "\r", ""])
def test_no_text_is_a_formula_and_all_is_read_back_as_it_was(texts):
    written = table_to_csv(head_rows(texts))
    reader = csv.DictReader(io.StringIO(written, newline=""))
    found = list(reader)
    assert [row["layer"] for row in found] == [str(i) for i in range(len(texts))]
    for row in found:
        assert not row["reason"].startswith(FORMULAS)
        assert row["lift"] == "-0.25"
    back = HEAD_TABLE.read(written.encode())
    for name in ("primary", "relation", "reason"):
        assert back[name].tolist() == texts
    plain = pd.read_csv(io.StringIO(written))
    assert plain["lift"].tolist() == [-0.25] * len(texts)
    assert list(plain.columns) == HEAD_COLUMNS


def test_the_printed_table_runs_nothing_either():
    assert ",'=1+1," in write_heads(head_rows(["=1+1"]), "csv")
    assert json.loads(write_heads(head_rows(["=1+1"]), "json"))[0]["reason"] == "=1+1"


def test_the_columns_that_are_read_are_those_that_are_written(tmp_path):
    run = hs.load(make_run(tmp_path / "run"))
    assert list(run.heads.columns) == columns_of("heads.csv")
    assert list(run.evidence.columns) == columns_of("evidence.csv")
    assert run.evidence["n"].dtype == run.heads["layer"].dtype == np.int64
    assert run.evidence["tagged"].dtype == bool


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("lift", "left"), "the columns are layer, head, primary"),
        (lambda text: text.replace("-0.25", "x"), "could not convert string to float"),
        (lambda text: text.replace("\n0,", f"\n{'9' * 30},"), "Overflow"),
        (lambda text: text.rstrip() + ",1\n", "Length of header or names does not match"),
        (lambda text: text + "\udcff", "can't decode byte 0xff"),
    ],
)
def test_another_table_is_refused(change, message):
    content = change(table_to_csv(head_rows(["a"]))).encode("utf-8", "surrogateescape")
    with pytest.raises((ValueError, OverflowError, pd.errors.ParserWarning), match=message):
        HEAD_TABLE.read(content)
