"""The report in a real browser: it asks nobody, every page draws, and anyone can read it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.browser import find_browser, visit


def test_the_page_asks_nobody_and_logs_no_error(page, tmp_path):
    script = """
      const pages = ["", "scatter", "about", "L1H2", "L0H0", "type=induction", "type=positional"];
      const lengths = [];
      for (const hash of pages) { await go(hash); lengths.push($("#main").textContent.length); }
      return lengths;
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []
    assert seen.requests == []
    assert min(seen.found) > 100


def test_every_head_has_a_page_with_its_near_miss_and_ladder(page, tmp_path):
    script = """
      await go("L1H1");
      const plain = $(".plain").textContent;
      await go("L1H2");
      return { plain, steps: $$(".ladder li").map((li) => [li.className, li.textContent]) };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []
    assert seen.found["plain"].startswith("No tag. It comes closest")
    assert ["holds", "✓ mass mass 0.800, floor 0.4"] in seen.found["steps"] or any(
        kind == "holds" and " mass 0.80" in said for kind, said in seen.found["steps"]
    )


def test_points_of_the_scatter_are_heads_on_any_axes(page, tmp_path):
    script = """
      await go("scatter");
      const before = $$(".dot").map((d) => d.getAttribute("cx"));
      const select = $("#axis-x"); select.value = "lift of induction/repeat";
      select.dispatchEvent(new Event("change")); await tick();
      const dots = $$(".dot").map((d) => [d.dataset.head, Number(d.getAttribute("cx"))]);
      return { before, dots };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []
    dots = dict(seen.found["dots"])
    assert len(dots) == 6
    assert max(dots, key=dots.get) == "L1H2"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_of_the_window(explained, tmp_path, width, scheme):
    script = """
      const wide = {};
      for (const hash of ["", "scatter", "about", "L1H2", "type=induction"]) {
        await go(hash); await tick(400);
        wide[hash] = document.documentElement.scrollWidth - document.documentElement.clientWidth;
      }
      return wide;
    """
    seen = visit(explained, script, tmp_path, width=width, scheme=scheme)
    assert all(extra <= 0 for extra in seen.found.values()), seen.found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_with_labels_or_contrast(explained, tmp_path, scheme):
    find_browser()
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs axe-core-python")
    axe = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    page = explained.replace(
        "</head>",
        f"<script>{axe.replace('</script', chr(60) + chr(92) + '/script')}</script></head>",
        1,
    )
    script = """
      const faults = {};
      for (const hash of ["", "scatter", "about", "L1H2", "type=induction"]) {
        await go(hash); await tick(300);
        const result = await axe.run(document, { exclude: [[".circuit"]] });
        faults[hash] = result.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary}`);
      }
      return faults;
    """
    seen = visit(page, script, tmp_path, scheme=scheme)
    assert seen.found is not None, seen.errors
    assert {hash_: faults for hash_, faults in seen.found.items() if faults} == {}
