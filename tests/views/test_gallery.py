"""The gallery: what its pages and tables say, in a real browser, and what it refuses."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.errors import HeadscopeError
from tests.helpers.hand_built import run_of

EVIL = "<b>six</b>\u202e heads"


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    """Two runs of the same name, one of two heads a layer and one of three."""
    home = tmp_path_factory.mktemp("runs")
    return [
        run_of(*layers, name=name).save(home / above / "same")
        for layers, name, above in ((("PP", "IE"), "tiny", "one"), (("PPP", "IEE"), EVIL, "two"))
    ]


@pytest.fixture(scope="module")
def site(folders, tmp_path_factory) -> Path:
    return hs.gallery(*folders, out=tmp_path_factory.mktemp("out") / "site", light=True).parent


@pytest.fixture(scope="module")
def page(site) -> str:
    return (site / "index.html").read_text(encoding="utf-8")


LOOK = """
  const shown = (selector) => $$(selector).filter((element) => !element.hidden);
  const seen = () => shown(".card").map((card) => card.querySelector("h2").textContent);
  const rows = () => shown("#table tbody tr").map((row) => row.cells[1].textContent);
  const given = [seen(), rows()];
  const type = async (id, value, kind) => {
    $(id).value = value;
    $(id).dispatchEvent(new Event(kind));
    await tick();
  };
  const squares = (path) => (path.getAttribute("d").match(/M/g) || []).length;
  await type("#sort", "heads", "change");
  const largest = [seen(), rows(), location.hash];
  await type("#sort", "positional", "change");
  const share = seen();
  await type("#find", "TINY", "input");
  const found = [seen(), rows(), location.hash];
  await go("?find=nothing+such&sort=induction");
  const none = [seen(), $("#find").value, $("#sort").value];
  await go("");
  return {
    given, largest, share, found, none, again: seen(), bold: $$("main b").length,
    counts: $$(".card")[0].querySelector(".counts").textContent.replace(/\\s+/g, " ").trim(),
    cells: $$(".card").map((card) => [...card.querySelectorAll(".map path")].map(squares)),
    text: $("main").textContent,
  };
"""


def test_cards_can_be_searched_and_sorted_and_the_address_says_how(browser, page):
    seen = browser.visit(page, LOOK)
    assert (seen.errors, seen.requests) == ([], [])
    found = seen.found
    both, swapped = ["same (1)", "same (2)"], ["same (2)", "same (1)"]
    assert found["given"] == [both, ["4", "6"]]
    assert found["largest"][:2] == [swapped, ["6", "4"]]
    assert found["largest"][2] == "#?sort=heads"
    assert found["share"] == both  # half of the heads of each look back: the order given
    assert found["found"][:2] == [["same (1)"], ["4"]]
    assert found["found"][2] == "#?find=TINY&sort=positional"
    assert found["none"] == [[], "nothing such", "induction"]
    assert found["again"] == both
    assert found["cells"] == [[2, 1, 1], [3, 1, 2]]
    assert found["counts"].startswith("P positional 2 L0 I induction 1 L1")
    assert found["bold"] == 0
    assert "<b>six</b>⟨202e⟩ heads" in found["text"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_with_the_gallery(browser, page, scheme):
    assert browser.open(page, scheme=scheme).axe_faults(["", "?find=tiny&sort=heads"]) == {}


def test_every_link_leads_to_a_page_and_each_report_leads_back(browser, site, page):
    links = re.findall(r'href="([^"]+)"', page)
    assert links
    for link in links:
        assert (site / link.partition("#")[0]).is_file(), link
    report = (site / "same-1" / "report.html").read_text(encoding="utf-8")
    script = """
      const link = $("header a");
      return [link.textContent, link.getAttribute("href"), $$(".cell").length];
    """
    assert browser.visit(report, script).found == ["all runs", "../index.html", 4]
    assert 'id="circuitsvis"' not in report


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_command_refuses_in_one_sentence_and_leaves_nothing_half_written(folders, tmp_path):
    def refused(*arguments: object) -> str:
        done = CliRunner().invoke(app, ["export", "gallery", *map(str, arguments)])
        assert isinstance(done.exception, HeadscopeError)
        return str(done.exception)

    out = tmp_path / "site"
    bad = shutil.copytree(folders[1], tmp_path / "bad")
    (bad / "heads.csv").write_text("layer,head\n")
    assert "heads.csv" in refused(folders[0], bad, "--out", out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.tex").write_text("precious")
    full = tmp_path / "full"
    assert "--out" in refused(folders[0], "--out", full)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "full"]
    assert everything(full) == {"a.tex": b"precious"}
