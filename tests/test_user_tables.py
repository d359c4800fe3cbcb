"""Files of users: every one is read whole and right, or refused with its name and row."""

from __future__ import annotations

import csv
import io
import json

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headscope as hs
from headscope.errors import CorpusError, HeadscopeError
from headscope.stimuli.few_shot import read_tasks
from headscope.stimuli.tasks import read_task
from headscope.studies.verify import read_scores
from headscope.user_tables import csv_table, json_content, jsonl_table, table_of_frame

BOM = "\ufeff"
READERS = {
    "task": (read_task, "prompt,answer,group", ["x 1,2,g", "x 2,3,h"]),
    "few-shot": (read_tasks, "task,question,answer", ["t,hot,cold", "t,big,small"]),
    "labels": (
        lambda path: hs.judge_labels("atlas:mini", path),
        "head,label,source",
        ["L0H0,sink,a", "L0H1,sink,a"],
    ),
    "scores": (
        read_scores,
        "model,revision,metric,layer,head,value",
        ["m,main,entropy,0,0,1", "m,main,entropy,0,1,2"],
    ),
}
"""Every reader of a user's CSV, its header, and rows that it takes."""


def rows_of(text: str) -> list[list[str]]:
    table = csv_table(text.encode(), "a.csv", HeadscopeError)
    assert not table.invalid
    return [list(row.values()) for row in table.rows.values()]


def invalid_rows(text: str) -> list[int]:
    return [row.number for row in csv_table(text.encode(), "a.csv", HeadscopeError).invalid]


@pytest.mark.parametrize(
    ("row", "cells"),
    [
        ('"a, b", "c"', ["a, b", "c"]),  # a blank before a quotation mark
        ('  "a" ,\t"b"  ', ["a", "b"]),
        ("a, b ", ["a", " b "]),  # elsewhere blanks are part of a field
        ('"say ""yes""",b', ['say "yes"', "b"]),
        ('"",', ["", ""]),
        ('say "yes" now,b', ['say "yes" now', "b"]),
        ('"one\ntwo",b', ["one\ntwo", "b"]),
        ("a\u2028b,c\x85d", ["a\u2028b", "c\x85d"]),
        (r'"a \""quoted\""",b', [r"a \"quoted\"", "b"]),  # a backslash of the text
        ("a\\b,c\\", ["a\\b", "c\\"]),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_a_row_has_the_cells_that_it_states(row, cells, end):
    assert rows_of(f"first,second{end or chr(10)}{row}{end}") == [cells]


@pytest.mark.parametrize(
    "row",
    [
        "a,b,c",
        "a",
        "a,b,",
        r'"say \"yes\"",b',
        r"say \"yes\",b",
        r'"say \"yes",b',
        r'"say \", then",b',
        '"a"b,c',
        '"a',
        'say "yes, no"',  # two cells, neither of them right
        '5" nail,b',
        "a,b",  # the header once more
    ],
)
def test_a_row_that_could_be_read_in_two_ways_is_refused(row):
    assert invalid_rows(f"a,b\nx,y\n{row}\n") == [3]


def test_rows_are_counted_with_header_and_empty_rows():
    assert invalid_rows('a,b\n\n"x\ny",z\nx\n  \nx,y,z\n') == [4, 6]


@given(
    st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=2))
)
def test_what_python_writes_is_read_back_or_refused(rows):
    """`csv.writer` is the other side; nothing is read as something else."""
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([["first", "second"], *rows])
    text = out.getvalue()
    try:
        table = csv_table(text.encode(), "a.csv", HeadscopeError)
    except HeadscopeError:
        assert "\0" in text
        return
    written = dict(enumerate(rows, 2))
    for number, row in table.rows.items():
        assert [cell.replace(BOM, "") for cell in written[number]] == list(row.values())
    left_out = written.keys() - table.rows.keys()
    assert left_out == {row.number for row in table.invalid}
    for number in left_out:
        assert any(cell.replace(BOM, "").endswith("\\") for cell in written[number])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n\n",
        b"a,a\nx,y\n",
        b"a,b,a\nx,y,z\n",
        "a,b\nx,y\n".encode("utf-16"),
        "a,b\nx,y\n".encode("utf-16-le"),
        "a,b\nné,y\n".encode("latin-1"),
        b"a;b\nx;y\n",
        b"a\tb\nx\ty\n",
        b'"a,b\nx,y\n',
        b"\x1f\x8b\x08\x00",
    ],
)
def test_another_table_is_refused_by_name(raw):
    with pytest.raises(CorpusError, match=r"^a\.csv"):
        csv_table(raw, "a.csv", CorpusError)


def test_two_columns_of_a_frame_have_two_names():
    frame = pd.DataFrame([["x", "y"]], columns=["a", "a"])
    with pytest.raises(CorpusError, match="'a'"):
        table_of_frame(frame, "labels", CorpusError)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "change",
    [
        lambda header, rows: [header, rows[0], rows[1] + ",more"],
        lambda header, rows: [header, rows[0], rows[1].rpartition(",")[0]],
        lambda header, rows: [header, rows[0], rows[1].replace(",", r',"\"', 1)],
        lambda header, rows: [header, rows[0], f'"{rows[1]}'],
    ],
)
def test_every_reader_names_the_row(name, change, tmp_path):
    read, header, rows = READERS[name]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(change(header, rows)), encoding="utf-8")
    with pytest.raises(HeadscopeError, match=r"mine\.csv.*row 3"):
        read(path)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("column", [0, 1])
def test_every_reader_refuses_a_column_that_comes_twice(name, column, tmp_path):
    read, header, rows = READERS[name]
    twice = header.split(",")[column]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join([f"{header},{twice}", *(f"{row},x" for row in rows)]))
    with pytest.raises(HeadscopeError, match=rf"mine\.csv.*{twice}"):
        read(path)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_names_a_missing_column_once_beside_those_of_the_file(name, tmp_path):
    read, header, rows = READERS[name]
    path = tmp_path / "mine.csv"
    # the second column is required everywhere
    columns = header.split(",")
    missing = columns[1]
    columns[1] = "of_mine"
    path.write_text("\n".join([",".join(columns), *rows]))
    with pytest.raises(HeadscopeError, match=rf"mine\.csv: .*lacks {missing};.*of_mine") as refused:
        read(path)
    assert "row" not in str(refused.value)
    assert columns[0] in str(refused.value).partition("must have")[2]


def test_a_column_that_a_frame_lacks_is_named_and_lines_of_json_are_named_by_row(tmp_path):
    with pytest.raises(CorpusError, match=r"lacks answer"):
        read_task(pd.DataFrame({"prompt": ["a", "b"]}))
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b", "answer": "c"}\n')
    with pytest.raises(CorpusError, match=r"row 1: answer is missing"):
        read_task(path)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_takes_a_spreadsheet_s_file(name, tmp_path):
    read, header, rows = READERS[name]
    path = tmp_path / "mine.csv"
    quoted = [", ".join(f'"{cell}"' for cell in row.split(",")) for row in rows]
    path.write_bytes("\r\n".join([BOM + header, *quoted, "", ""]).encode())
    read(path)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('{"a": "x\u2028y"}', {"a": "x\u2028y"}),
        ('{"a": "x\x85y"}\r', {"a": "x\x85y"}),
        (BOM + '{"a": 1}', {"a": 1}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
    ],
)
def test_a_line_of_json_ends_at_a_line_feed_alone(line, value):
    table = jsonl_table(f"{line}\n\n{{}}\n".encode(), "a.jsonl", HeadscopeError)
    assert table.rows == {1: value, 3: {}}


FAULTY_JSON = [
    "[" * 100_000,
    '{"a": 1, "a": 2}',
    '{"b": {"a": 1, "c": 3, "a": 1}}',
    r'{"a": "\ud800"}',
    r'["\udfff\ud800"]',
    "{",
    "9" * 5000,
    '{"a": "b',
    "nonsense",
]


@pytest.mark.parametrize("text", FAULTY_JSON)
def test_faulty_json_is_refused(text):
    table = jsonl_table(f"{{}}\n{text}\n{{}}\n".encode(), "a.jsonl", CorpusError)
    assert [row.number for row in table.invalid] == [2]
    assert list(table.rows) == [1, 3]
    with pytest.raises(CorpusError, match=r"^a\.json"):
        json_content(text.encode(), "a.json", CorpusError)


@pytest.mark.parametrize("text", FAULTY_JSON)
def test_faulty_lines_of_a_task_are_named(text, tmp_path):
    path = tmp_path / "mine.jsonl"
    row = json.dumps({"prompt": "a 1", "answer": "2"})
    path.write_text("\n".join([row, text, row]), encoding="utf-8")
    with pytest.raises(CorpusError, match=r"mine\.jsonl.*row 2"):
        read_task(path)
