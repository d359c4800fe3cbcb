"""The film of a sweep: a page with a slider, moved by the keyboard, with its place in the address."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.errors import HeadscopeError, RunError
from headscope.studies.sweep.film import film_html
from headscope.studies.sweep.sweep_cells import COMPLETE, FAILED, PLAN, Cell, read_sweep_cells
from tests.browser import axe_faults, visit

EVIL = "</script><b>main</b>"


def made(folder: Path, layers: int, looks: list[tuple[int, int]]) -> None:
    """A run of so many layers × 2 heads; those that are named look at the previous token."""
    n, documents = 12, 10
    a = np.zeros((layers, 2, n + 1, n + 1))
    for layer, head in looks:
        a[layer, head, np.arange(1, n + 1), np.arange(n)] = 0.9
    a[..., 0] += 1 - a.sum(-1)
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(n)]] for i in range(documents)]
    hs.score_patterns([a] * documents, None, tokens, out=folder)


def write_sweep(folder: Path, cells: list[Cell]) -> Path:
    rows = [{key: own for key, own in asdict(cell).items() if key != "asked"} for cell in cells]
    plan = {"settings": {}, "models": {}, "corpora": {}, "cells": rows}
    folder.mkdir(exist_ok=True)
    (folder / PLAN).write_text(json.dumps(plan))
    return folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory) -> Path:
    """Three checkpoints of one model, out of order, one of another, and one that failed."""
    folder = tmp_path_factory.mktemp("sweep") / "stages"
    looking = {"step100": [(0, 0), (1, 1)], "step0": [], "step20": [(0, 0)]}
    for name, looks in looking.items():
        made(folder / name, 2, looks)
    made(folder / "other", 3, [(2, 0)])
    cells = [Cell("tiny", name, ("gum",), name, COMPLETE, "", 4) for name in looking]
    cells.append(Cell("tiny", "step7", ("gum",), "none", FAILED, "gone"))
    cells.append(Cell(EVIL, None, ("gum",), "other", COMPLETE, "", 6))
    return write_sweep(folder, cells)


@pytest.fixture(scope="module")
def page(sweep) -> str:
    return film_html(sweep, read_sweep_cells(sweep))


WALK = """
  const letters = () => $$("#grid .cell").map((c) => c.textContent).join("|");
  const seen = () => [letters(), $("#now").textContent, $("#at").value, location.hash, $$(".cell.changed").map((c) => c.dataset.head).join(" ")];
  const key = async (name, at = document.body) => { at.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true })); await tick(); };
  const shots = [seen()];
  await key("ArrowRight"); shots.push(seen());
  await key("ArrowRight"); shots.push(seen());
  await key("ArrowRight"); shots.push(seen());
  await key("ArrowLeft"); shots.push(seen());
  const said = $("#counts").textContent.replace(/\\s+/g, " ").trim(), value = $("#at").getAttribute("aria-valuetext");
  await go("?at=2"); shots.push(seen());
  await key(" "); const playing = $("#play").textContent; await tick(2500);
  shots.push(seen());
  $("#at").value = 0; $("#at").dispatchEvent(new Event("input", { bubbles: true })); await tick(); shots.push(seen());
  $(".cell").focus(); await tick(); const tip = $("#tip").textContent;
  await go("?model=1&at=9");
  const other = [letters(), $("#now").textContent, $("#play").disabled, $("#title").textContent];
  return { shots, said, value, playing, stopped: $("#play").textContent, tip, other, bold: $$("b").length,
    wide: document.documentElement.scrollWidth - innerWidth, labels: $$("input, select").filter((own) => !own.labels.length).length };
"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (500, "dark")])
def test_the_slider_the_keys_and_the_address_lead_to_a_revision(page, tmp_path, width, scheme):
    seen = visit(page, WALK, tmp_path, width=width, scheme=scheme)
    assert (seen.errors, seen.requests) == ([], [])
    first = ["R|R|R|R", "step0", "0"]
    second = ["P|R|R|R", "step20", "1", "#?at=1", "L0H0"]
    third = ["P|R|R|P", "step100", "2", "#?at=2", "L1H1"]
    shots = seen.found["shots"]
    assert [shots[0][:3], *shots[1:6]] == [first, second, third, third, second, third]
    assert shots[6] == third  # played from its first revision to its last
    assert shots[7][:3] == first
    assert seen.found["playing"] == "Stop"
    assert seen.found["stopped"] == "Play"
    assert "positional 1 +1" in seen.found["said"]
    assert "sink 3 −1" in seen.found["said"]
    assert seen.found["value"] == "step20, 2 of 3"
    assert seen.found["tip"].startswith("L0H0, sink, lift 1.00")
    assert seen.found["other"] == ["R|R|R|R|P|R", "–", True, EVIL.rpartition("/")[2] + " on gum"]
    assert seen.found["bold"] == 0
    assert seen.found["wide"] <= 0
    assert seen.found["labels"] == 0


def test_the_command_writes_it_and_refuses_what_can_be_no_film(sweep, tmp_path):
    out = tmp_path / "film.html"

    def film(folder: Path) -> object:
        return CliRunner().invoke(app, ["sweep", "emergence", str(folder), "--film", str(out)])

    assert film(sweep).exit_code == 0
    drawn = CliRunner().invoke(app, ["draw", "film", str(sweep), "--out", str(tmp_path / "d.html")])
    assert drawn.exit_code == 0
    assert (tmp_path / "d.html").read_text() == out.read_text()
    assert out.read_text() == film_html(sweep, read_sweep_cells(sweep))
    out.unlink()
    cells = read_sweep_cells(sweep)
    mixed = [Cell("m", name, (), name, COMPLETE) for name in ("step0", "other")]
    with pytest.raises(RunError, match=r"other has 3 × 2 heads and step0 2 × 2; a film has one"):
        film_html(sweep, mixed)
    with pytest.raises(RunError, match="none of the 1 runs of this sweep is complete"):
        film_html(sweep, [cell for cell in cells if cell.status == FAILED])
    gone = write_sweep(tmp_path / "gone", cells)
    assert isinstance(film(gone).exception, HeadscopeError)
    assert not out.exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_with_the_film(page, tmp_path, scheme):
    assert axe_faults(page, ["", "?at=2", "?model=1"], tmp_path, scheme=scheme) == {}
