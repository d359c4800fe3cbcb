"""The report in a real browser: it asks nobody, every page draws, and anyone can read it."""

from __future__ import annotations

import pytest

import headscope as hs
from tests.browser import axe_faults, opened, visit


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
    assert seen.found["plain"].startswith("No tag, closest to this: it puts ")
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
def test_axe_finds_no_fault_with_labels_or_contrast(explained, tmp_path, scheme):
    places = ["", "scatter", "about", "L1H2", "type=induction"]
    assert axe_faults(opened(explained, tmp_path, scheme=scheme), places) == {}


def test_a_type_says_what_it_asks_and_what_its_numbers_mean(page, tmp_path):
    script = """
      await go("type=induction");
      return { lead: $(".lead").textContent, terms: $$(".columns dt").map((d) => d.textContent),
               columns: $$("#main th").map((th) => th.textContent) };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []
    kind = hs.head_types()["induction"]
    assert f"look at: {kind.looks_at}." in seen.found["lead"]
    assert f"Control keys: {kind.rivals}." in seen.found["lead"]
    said = {word for term in seen.found["terms"] for word in term.split(", ")}
    assert set(seen.found["columns"]) - said == {"head", "relation", "best head"}
