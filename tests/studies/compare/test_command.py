"""`headscope compare` as its users see it: what it prints and writes, and bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
from typer.testing import CliRunner

from headscope.cli import app, main
from headscope.errors import HeadscopeError
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


def test_bad_input_ends_with_one_message_and_nothing_written(
    before, after, deep, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("precious")
    (tmp_path / "file").write_text("no folder")
    for arguments, message in (
        ([before], "compare takes two runs or more, and 1 came"),
        ([before, "nowhere"], "nowhere: no run here (run.json is missing)"),
        ([before, after, "--out", "there.csv"], "there.csv exists already; choose another name"),
        ([before, after, "--out", "rows.txt"], "rows.txt: cannot write .txt; choose .csv"),
        ([before, after, "--figure", "p.html"], "p.html: cannot write .html; choose .png"),
        ([before, after, "--out", "x.csv", "--figure", "file/p.png"], "file/p.png cannot be written"),
        ([before, deep], "before and deep differ in layers or heads"),
    ):  # fmt: skip
        command = ["headscope", "compare", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", command)
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert ended.value.code == 2, arguments
        assert printed.err.startswith("headscope: ")
        assert message in printed.err
        assert printed.err.count("\n") == 1
        assert printed.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there.csv"]
    assert (tmp_path / "there.csv").read_text() == "precious"


def test_a_file_that_fails_half_way_takes_the_others_with_it(tmp_path):
    from headscope.runs.write import write_files

    def fail(path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    files = {tmp_path / "one.csv": b"1", tmp_path / "two.csv": fail}
    with pytest.raises(HeadscopeError, match=r"two\.csv cannot be written: No space left"):
        write_files(files)
    assert list(tmp_path.iterdir()) == []


def test_comparing_imports_no_torch(before, after, tmp_path):
    arguments = ["compare", before, after, "--figure", tmp_path / "p.png"]  # fmt: skip
    code = (
        "import sys; from headscope.cli.app import app; import headscope.cli\n"
        f"app({list(map(str, arguments))!r}, standalone_mode=False)\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split()[-2:] == ["False", "True"]
