"""Heads without a tag: one of two words, and one count of each, in every output of a run."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from rich.console import Console

import headscope as hs
from headscope.serve.live import Live
from headscope.serve.live_page import live_data
from headscope.statistics.head_lists import undecided
from headscope.statistics.head_table import with_no_type
from headscope.views.figures import atlas_figure, layers_figure
from headscope.views.html_page import atlas_html
from headscope.views.summary import BELOW_SIGN, atlas_grid, legend, summary
from tests.helpers.hand_built import run_of

NI, UN = "not identifiable", "unclassified"
COUNTS = {"positional": 1, "sink": 1, NI: 3, UN: 2}
"""Heads of each type, counted by hand."""
LETTERS = "P R ? ? ? · ·"


def made() -> hs.Run:
    """One layer: the token before, the first token, and five heads that look at every token.

    The verdict on one relation of three of these is set by hand, as of a text that cannot tell.
    """
    run = run_of("PSEEEEE", name="seven heads", repeats=False)
    evidence = run.evidence.copy()
    row = evidence["head"].isin([2, 3, 4]) & (evidence["relation"] == "offset-2")
    columns = ["verdict", "baseline", "hard_n"]
    evidence.loc[row, columns] = [NI, "nearest-VERB", 7.0]
    run = replace(run, evidence=evidence)
    return replace(run, heads=with_no_type(run.heads, run.evidence_with_thresholds))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return made().save(tmp_path_factory.mktemp("counted") / "run")


@pytest.fixture(scope="module")
def run(folder) -> hs.Run:
    return hs.load(folder)


def printed(what) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(what)
    return out.getvalue()


def of_a_table(run: hs.Run, folder: Path, tmp: Path) -> dict[str, int]:
    return pd.read_csv(folder / "heads.csv")["primary"].value_counts().to_dict()


def of_the_terminal(run: hs.Run, folder: Path, tmp: Path) -> dict[str, int]:
    said = printed(summary(run))
    assert f"L0  {LETTERS}" in said
    return {name: int(n) for name, n in re.findall(rf"({NI}|{UN}) (\d+) ", said)}


def of_a_notebook(run: hs.Run, folder: Path, tmp: Path) -> dict[str, int]:
    legend, _, table = atlas_html(run).partition("<table")
    counts = {name: int(n) for name, n in re.findall(rf"({NI}|{UN}) (\d+)<", legend)}
    assert {name: table.count(f": {name}, lift") for name in counts} == counts
    return counts


def of_the_live_page(run: hs.Run, folder: Path, tmp: Path) -> dict[str, int]:
    live = object.__new__(Live)  # whose model the page of a run is not asked for
    live.run, live.model, live.most = run, SimpleNamespace(name=run.name), 256
    rows = live_data(live)["rows"]
    assert [row["undecided"] is not None for row in rows] == [row["primary"] == NI for row in rows]
    return dict(Counter(row["primary"] for row in rows))


def of_a_gallery(run: hs.Run, folder: Path, tmp: Path) -> dict[str, int]:
    index = hs.gallery(folder, out=tmp / "site").read_text(encoding="utf-8")
    return {name: int(n) for name, n in re.findall(rf'title="({NI}|{UN}) (\d+)', index)}


def of_pictures(run: hs.Run, folder: Path, tmp: Path) -> dict[str, int]:
    letters = Counter(text.get_text() for text in atlas_figure(run).axes[0].texts)
    axes = layers_figure(run).axes[0]
    hatched = sum(p.get_height() for p in axes.patches if p.get_hatch() == "////")
    assert hatched == letters["?"]
    return {NI: letters["?"], UN: letters["·"]}


OUTPUTS: list[Callable[[hs.Run, Path, Path], dict[str, int]]] = [
    of_a_table,
    of_the_terminal,
    of_a_notebook,
    of_the_live_page,
    of_a_gallery,
    of_pictures,
]


def test_the_key_counts_the_letters_of_the_grid_of_heads_with_several_tags():
    run = hs.load("atlas:mini")
    assert run.heads["tags"].str.contains(";").any()
    rows = str(atlas_grid(run)).splitlines()
    signs = Counter("".join(row.split(maxsplit=1)[1] for row in rows))
    letters = {sign: n for sign, n in signs.items() if sign not in (" ", BELOW_SIGN)}
    entries = re.findall(r"(\S) [a-z -]+ (\d+)  ", str(legend(run)))
    assert {letter: int(n) for letter, n in entries} == letters


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.__name__)
def test_every_output_counts_both_words_alike(run, folder, output, tmp_path):
    counts = output(run, folder, tmp_path)
    assert {name: counts.get(name) for name in (NI, UN)} == {NI: COUNTS[NI], UN: COUNTS[UN]}
    assert run.heads["primary"].value_counts().to_dict() == COUNTS


def test_the_report_counts_both_words_alike(browser, run):
    script = """
      const cells = $$(".cell").map((c) => c.dataset.primary);
      const count = (filter) => Number(filter.querySelector(".count").textContent);
      const filters = Object.fromEntries($$(".filter").map((f) => [f.dataset.type, count(f)]));
      const classes = {
        undecided: $$(".cell.type-undecided").length,
        unclassified: $$(".cell.type-unclassified").length,
      };
      const listed = $$(".undecided li a").length;
      const lines = $$("table").flatMap((table) => [...table.rows]);
      const rows = lines.map((line) => [...line.cells].map((cell) => cell.textContent));
      return { cells, filters, classes, listed, rows, findings: $(".findings").textContent };
    """
    seen = browser.visit(run.report(), script)
    assert seen.errors == []
    found = seen.found
    counts = dict(Counter(found["cells"]))
    assert {name: found["filters"][name] for name in (NI, UN)} == {NI: counts[NI], UN: counts[UN]}
    assert found["classes"] == {"undecided": counts[NI], "unclassified": counts[UN]}
    assert found["listed"] == counts[NI]
    assert {row[0]: int(row[1]) for row in found["rows"] if row and row[0] in (NI, UN)} == {
        name: counts[name] for name in (NI, UN)
    }
    assert re.search(rf"{counts[NI]} (is|are) {NI}", found["findings"])
    assert re.search(rf"{counts[UN]} (has|have) no tag\.", found["findings"])
    assert {name: counts[name] for name in COUNTS} == COUNTS


def test_a_head_with_a_tag_is_no_question_whatever_else_cannot_be_told(run):
    evidence = run.evidence.copy()
    row = (evidence["head"] == 0) & (evidence["relation"] == "offset-2")
    evidence.loc[row, "verdict"] = NI
    table = replace(run, evidence=evidence).evidence_with_thresholds
    assert undecided(run.heads, table).index.tolist() == ["L0H2", "L0H3", "L0H4"]
    assert with_no_type(run.heads, table)["primary"].equals(run.heads["primary"])
