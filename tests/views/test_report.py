"""The report in a real browser: it asks nobody, every page draws, and anyone can read it."""

from __future__ import annotations

import pytest

from tests.browser import axe_faults, visit


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
    places = ["", "scatter", "about", "L1H2", "type=induction"]
    assert axe_faults(explained, places, tmp_path, scheme=scheme) == {}
