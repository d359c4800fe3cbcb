"""`headscope compare` as its users see it: what it prints and writes, and bad input."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app, main
from headscope.errors import HeadscopeError
from headscope.studies.compare.changes import HEADS, RELATIONS
from tests.browser import find_browser, visit

EVIL = "</style><script>alert(1)</script><b>\u202e"


def run_app(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_table_names_the_changes_in_100_columns(before, after, make):
    long = make("a-very-long-name-" * 5, 2, 3, previous=[(0, 0)])
    printed = run_app(before, after, long)
    assert max(map(len, printed.splitlines())) <= 100
    assert "3 of 12 heads changed their tags" in printed
    printed = run_app(before, after)
    (line,) = (line for line in printed.splitlines() if line.startswith("L1H2"))
    assert line.split() == ["L1H2", "induction", "unclassified", "induction*", "-0.80", "induction/repeat"]  # fmt: skip


def test_csv_json_and_files_hold_the_tables(before, after, tmp_path):
    out, picture, page = (tmp_path / name for name in ("rows.csv", "p.svg", "p.html"))
    printed = run_app(
        before, after, "--out", out, "--table", "relations", "--figure", picture, "--html", page
    )
    assert printed.count("written to") == 3
    rows = pd.read_csv(out)
    assert list(rows.columns) == RELATIONS
    assert len(rows) == len(hs.load(before).evidence)
    assert "<svg" in picture.read_text()
    assert page.read_text().startswith("<!doctype html>")
    csv = run_app(before, after, "--format", "csv").splitlines()
    assert csv[0] == ",".join(HEADS)
    assert len(csv) == 1 + 6
    content = json.loads(run_app(before, after, "--format", "json"))
    assert content["runs"] == ["before", "after"]
    assert [row["lost"] for row in content["heads"]].count("induction") == 1


def test_different_shapes_have_shares_by_depth(before, deep, tmp_path):
    picture, page = tmp_path / "p.png", tmp_path / "p.html"
    printed = run_app(before, deep, "--figure", picture, "--html", page)
    assert "different numbers of layers or heads: compared by depth only" in printed
    assert "50%" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    content = json.loads(run_app(before, deep, "--format", "json"))
    assert content["heads"] is None
    assert {row["run"] for row in content["depth"]} == {"before", "deep"}


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
        ([before, after, "--html", "p.pdf"], "p.pdf: cannot write .pdf; choose .html"),
        ([before, after, "--out", "x.csv", "--html", "file/p.html"], "file/p.html cannot be written"),
        ([before, deep, "--table", "heads"], "runs of different shapes have no table 'heads'"),
    ):  # fmt: skip
        extra = ["--format", "csv"] if deep in arguments else []
        command = ["headscope", "compare", *map(str, [*arguments, *extra])]
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
    arguments = ["compare", before, after, "--html", tmp_path / "p.html", "--figure", tmp_path / "p.png"]  # fmt: skip
    code = (
        "import sys; from headscope.cli.app import app; import headscope.cli\n"
        f"app({list(map(str, arguments))!r}, standalone_mode=False)\n"
        "print('torch' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.split()[-2:] == ["False", "True"]


@pytest.fixture(scope="module")
def evil_page(before, after) -> str:
    """Names that a page must not run, and a browser that may run the test's own scripts."""
    one, two = hs.load(before), hs.load(after)
    named = replace(two, info={**two.info, "model": {"name": EVIL}})
    kinds = dict.fromkeys(("positional",), EVIL)
    renamed = [
        replace(
            run,
            heads=run.heads.replace({"primary": kinds, "tags": kinds}),
            evidence=run.evidence.replace({"type": kinds}),
        )
        for run in (one, named)
    ]
    page = hs.compare(*renamed).html()
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    return page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_the_page_stands_alone_and_is_accessible(evil_page, tmp_path, width, scheme):
    find_browser()
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs axe-core-python")
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    axe = axe.replace("</script", "<\\/script")
    page = evil_page.replace("</head>", f"<script>{axe}</script></head>", 1)
    script = """
      const result = await axe.run(document);
      const root = document.documentElement;
      return {
        faults: result.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`),
        wide: root.scrollWidth - root.clientWidth, bold: $$("main b").length,
        framed: $$(".cell.sure").map((c) => c.title), cells: $$(".cell").length,
        background: getComputedStyle(document.body).backgroundColor,
      };
    """
    seen = visit(page, script, tmp_path, width=width, scheme=scheme)
    assert seen.errors == []
    assert seen.requests == []
    assert seen.found["faults"] == []
    assert seen.found["wide"] <= 0
    assert seen.found["bold"] == 0
    assert seen.found["cells"] == 12
    assert len(seen.found["framed"]) == 2
    assert seen.found["framed"][1] == "L1H2: unclassified; was induction"
    assert seen.found["background"] == ("rgb(23, 23, 27)" if scheme == "dark" else "rgb(255, 255, 255)")  # fmt: skip
