"""Tables as CSV, read back as they were."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.runs.tables import HEAD_TABLE, table_to_csv
from headscope.statistics.columns import HEAD_COLUMNS
from tests.helpers.formats import columns_of
from tests.helpers.run_folders import make_run

TEXTS = ["=1+1", "-2", "'", '"', ",", "a\nb", "NA", "null", "1", ""]


def head_rows(texts: list[str]) -> pd.DataFrame:
    rows = {name: [-0.25] * len(texts) for name in HEAD_COLUMNS}
    rows |= {name: list(texts) for name in ("primary", "tags", "relation", "shape", "reason")}
    rows |= {"layer": range(len(texts)), "head": [0] * len(texts), "kv_group": [0] * len(texts)}
    return pd.DataFrame(rows)[HEAD_COLUMNS]


def test_every_text_is_read_back_as_it_was():
    back = HEAD_TABLE.read(table_to_csv(head_rows(TEXTS)).encode())
    for name in ("primary", "relation", "reason"):
        assert back[name].tolist() == TEXTS
    assert back["lift"].tolist() == [-0.25] * len(TEXTS)
    assert list(back.columns) == HEAD_COLUMNS


def test_a_file_of_heads_begins_with_their_names_and_one_without_is_read():
    heads = head_rows(TEXTS).assign(layer=5, head=range(len(TEXTS)))
    written = HEAD_TABLE.csv(heads)
    assert written.startswith("name,layer,head,")
    assert "\nL5H1,5,1," in written
    back = HEAD_TABLE.read(written.encode())
    pd.testing.assert_frame_equal(back, HEAD_TABLE.read(table_to_csv(heads).encode()))
    with pytest.raises(ValueError, match="name"):
        HEAD_TABLE.read(written.replace("L5H1", "L6H1", 1).encode())


def test_the_columns_that_are_read_are_those_that_are_written(tmp_path):
    run = hs.load(make_run(tmp_path / "run"))
    assert [run.heads.index.name, *run.heads.columns] == columns_of("heads.csv")
    assert list(run.evidence.columns) == columns_of("evidence.csv.gz")
    assert run.evidence["n"].dtype == run.heads["layer"].dtype == np.int64
    assert run.evidence["tagged"].dtype == bool


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("lift", "left"), "layer, head, primary"),
        (lambda text: text.replace("-0.25", "x"), "float"),
        (lambda text: text.replace("\n0,", f"\n{'9' * 30},"), "Overflow"),
    ],
)
def test_another_table_is_refused(change, message):
    content = change(table_to_csv(head_rows(["a"]))).encode()
    with pytest.raises((ValueError, OverflowError), match=message):
        HEAD_TABLE.read(content)
