"""The report in a real browser: it asks nobody, every page draws, and anyone can read it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headscope as hs
from headscope.views.report import report_html
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


def test_a_page_says_when_its_examples_are_of_another_relation(run, tmp_path):
    """L0H0 looks at the token before, and its only example here is of repeats."""
    other = replace(run.examples[0], layer=0, head=0)
    odd = hs.Run(run.heads, run.evidence, run.rules, run.info, None, None, [*run.examples, other])
    script = """
      const said = {};
      for (const head of ["L0H0", "L1H2"]) { await go(head); said[head] = $(".examples .small").textContent; }
      return said;
    """
    seen = visit(report_html(odd), script, tmp_path)
    assert seen.errors == []
    assert seen.found["L0H0"].startswith("No examples were kept for “")
    assert seen.found["L1H2"].startswith("Framed")


def test_no_word_of_a_table_is_broken_on_a_telephone(explained, tmp_path):
    """A word that is broken lies in two boxes."""
    script = """
      const broken = [];
      for (const hash of ["", "about", "type=induction"]) {
        await go(hash); await tick(300);
        for (const cell of $$("#main td:first-child, #main th")) {
          const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
          while (walk.nextNode()) for (const word of walk.currentNode.data.matchAll(/[A-Za-z_]+/g)) {
            const range = document.createRange();
            range.setStart(walk.currentNode, word.index);
            range.setEnd(walk.currentNode, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
          }
        }
      }
      return broken;
    """
    seen = visit(explained, script, tmp_path, width=390)
    assert seen.errors == []
    assert seen.found == []
