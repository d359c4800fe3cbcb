"""CSV that a spreadsheet may open, and HTML that may hold any token."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import headscope as hs
from headscope.errors import RunError
from headscope.runs.folder import HEADS
from headscope.runs.listing import write_heads
from headscope.runs.tables import read_heads, table_to_csv
from headscope.statistics.columns import HEAD_COLUMNS
from headscope.views.html_page import atlas_html
from headscope.views.report.data import to_json
from headscope.views.show import AttentionView
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
def test_no_text_is_a_formula_and_all_is_read_back_as_it_was(tmp_path_factory, texts):
    path = tmp_path_factory.getbasetemp() / HEADS
    written = table_to_csv(head_rows(texts))
    path.write_bytes(written.encode())
    reader = csv.DictReader(io.StringIO(written, newline=""))
    found = list(reader)
    assert [row["layer"] for row in found] == [str(i) for i in range(len(texts))]
    for row in found:
        assert not row["reason"].startswith(FORMULAS)
        assert row["lift"] == "-0.25"
    back = read_heads(path)
    for name in ("primary", "relation", "reason"):
        assert back[name].tolist() == texts
    plain = pd.read_csv(path)
    assert plain["lift"].tolist() == [-0.25] * len(texts)
    assert list(plain.columns) == HEAD_COLUMNS


def test_an_ordinary_table_is_written_as_it_always_was():
    table = head_rows(["syntactic", "it's", "a -1 b"])
    expected = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")
    assert table_to_csv(table) == expected


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
        (lambda text: "", "No columns to parse"),
        (lambda text: text.replace("lift", "left"), "the columns are layer, head, primary"),
        (lambda text: text.replace("-0.25", "x"), "could not convert string to float"),
        (lambda text: text.replace("\n0,", f"\n{'9' * 30},"), "cannot be read as the table"),
        (lambda text: text.rstrip() + ",1\n", "cannot be read as the table"),
        (lambda text: text + '"', "EOF inside string"),
        (lambda text: text + "\udcff", "can't decode byte 0xff"),
    ],
)
def test_another_table_is_refused_by_name(tmp_path, change, message):
    path = tmp_path / HEADS
    path.write_bytes(change(table_to_csv(head_rows(["a"]))).encode("utf-8", "surrogateescape"))
    with pytest.raises(RunError, match=re.escape(message)) as error:
        read_heads(path)
    assert str(error.value).startswith(str(path))


class Elements(HTMLParser):
    """The elements of a page, and the text of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


texts = st.one_of(
    st.text(max_size=20),
    st.lists(
        st.sampled_from(["<", ">", "&", '"', "'", "</script>", "<!--", "]]>", "<script>", "\u2028", "\0", "\ud83d", "${x}", "{{x}}"]),
        max_size=6,
    ).map("".join),
)  # fmt: skip


@SOME
@given(st.lists(texts, min_size=1, max_size=4))
def test_any_text_in_a_script_is_data(tokens):
    page = f"<script>{to_json({'tokens': tokens})}</script><p></p>"
    parsed = Elements(page)
    assert parsed.names == ["script", "p"]
    assert json.loads("".join(parsed.texts)) == {"tokens": tokens}


@SOME
@given(texts, texts.filter(lambda text: text == text.encode("utf-8", "replace").decode()))
def test_any_name_in_a_notebooks_table_is_text(tmp_path_factory, model, kind):
    heads = pd.DataFrame(
        {"layer": [0], "head": [0], "primary": [kind or "x"], "tags": [kind], "lift": [0.5]}
    )
    run = hs.Run(heads, heads, {}, {"model": {"name": model}})
    parsed = Elements(atlas_html(run))
    assert parsed.names == ["div", "b", "br", "span", "table", "tr", "th", "td"]
    assert set().union(*parsed.attributes) <= {"style", "title"}


@SOME
@given(texts, texts)
def test_any_token_in_a_view_is_text(title, token):
    view = AttentionView(title, ("<s>", token), np.array([[1, 0], [0.5, 0.5]]))
    parsed = Elements(view.html())
    cells = ["rect", "title"] * 3
    picture = ["figure", "svg", *cells, "figcaption"]
    assert parsed.names == ["meta", "title", "h1", "div", *picture, "script"]
