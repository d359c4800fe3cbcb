"""`headscope compare` as its users see it: what it prints and writes, and bad input."""

from __future__ import annotations

import json

import pandas as pd
from typer.testing import CliRunner

from headscope.cli import app
from headscope.studies.compare import HEADS


def run_app(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_terminal_lists_changed_heads(before, after, make):
    long = make("a-very-long-name-" * 5, 2, 3, previous=[(0, 0)])
    assert "3 of 12 heads changed their tags" in run_app(before, after, long)
    printed = run_app(before, after)
    (line,) = (line for line in printed.splitlines() if line.startswith("L1H2"))
    assert line.split() == ["L1H2", "induction", "unclassified", "induction", "induction", "induction/repeat", "-0.800"]  # fmt: skip
    assert "L0H0" not in printed


def test_csv_json_and_files_hold_the_table(before, after, tmp_path):
    out, picture = tmp_path / "rows.csv", tmp_path / "p.svg"
    printed = run_app(before, after, "--out", out, "--figure", picture)
    assert printed.count("written to") == 2
    csv = run_app(before, after, "--format", "csv")
    assert out.read_text() == csv
    assert csv.splitlines()[0] == ",".join(HEADS)
    assert len(pd.read_csv(out)) == 6
    assert "<svg" in picture.read_text()
    content = json.loads(run_app(before, after, "--format", "json"))
    assert content["runs"] == ["before", "after"]
    assert [row["lost"] for row in content["table"]].count("induction") == 1
