"""The report's first page in a real browser: cells, filters, search, findings and counts."""

from __future__ import annotations

import headscope as hs
from headscope.views.report import report_html


def test_the_atlas_has_a_cell_for_every_head_and_can_be_filtered_searched_and_clicked(
    browser, page
):
    script = """
      const cells = $$(".cell").map((c) => [c.dataset.head, c.dataset.primary]);
      $('.filter[data-type="induction"]').click(); await tick();
      const lit = $$(".cell:not(.faded)").map((c) => c.dataset.head);
      $('.filter[data-type="induction"]').click(); await tick();
      const all = $$(".cell:not(.faded)").length;
      $("#find").value = "1.2"; $("#search").requestSubmit(); await tick(150);
      const searched = [location.hash, $("h2").textContent.trim()];
      await go("");
      $('.cell[data-head="L0H0"]').click(); await tick(150);
      const clicked = location.hash;
      await go("");
      $("#find").value = "9.9"; $("#search").requestSubmit(); await tick();
      return { cells, lit, all, searched, clicked, bad: $("#find").validationMessage };
    """
    seen = browser.visit(page, script)
    assert seen.errors == []
    assert len(seen.found["cells"]) == 6
    assert dict(seen.found["cells"])["L1H2"] == "induction"
    assert dict(seen.found["cells"])["L0H0"] == "positional"
    assert seen.found["lit"] == ["L1H2"]
    assert seen.found["all"] == 6
    assert seen.found["searched"] == ["#L1H2", "L1H2 induction"]
    assert seen.found["clicked"] == "#L0H0"
    assert seen.found["bad"] == "No head 9.9; they go up to L1H2."


def test_a_map_beside_the_atlas_shows_what_rules_explain(browser, page, explained):
    script = """
      const strength = (cell) => cell.style.getPropertyValue("--strength");
      const cells = $$(".share").map((c) => [c.dataset.explained, c.textContent, strength(c)]);
      const own = $('.share[data-explained="L0H1"]');
      own?.focus(); await tick();
      return { cells, tip: $("#tip").textContent };
    """
    seen = browser.visit(explained, script)
    assert seen.errors == []
    assert seen.found["cells"] == [
        ["L0H0", "91", "0.91"],
        ["L0H1", "50", "0.50"],
        ["L0H2", "-20", "0.00"],
        ["L1H0", "100", "1.00"],
        ["L1H1", "7", "0.07"],
        ["L1H2", "35", "0.35"],
    ]
    assert seen.found["tip"] == "L0H1, 50 per cent explained: rule 1 <b>"
    assert browser.visit(page, script).found["cells"] == []


def test_the_atlas_begins_on_the_first_screen_with_what_explains_it_beside_it(browser):
    page = browser.open(report_html(hs.load("atlas:smollm2"), light=True))
    script = """
      const top = (selector) => $(selector).getBoundingClientRect().top;
      const first = [top(".cell"), top(".signs")];
      const [aside, grid] = [".aside", ".grid"].map((box) => $(box).getBoundingClientRect());
      const gap = aside.left - grid.right;
      window.scrollTo(0, document.documentElement.scrollHeight); await tick();
      const end = $(".aside").lastElementChild.getBoundingClientRect();
      return { first, gap, end: end.bottom };
    """
    found = page.run(script).found
    assert max(found["first"]) < 450
    assert found["gap"] > 0
    assert 0 < found["end"] <= 900  # at the page's end the column beside the atlas is still seen


def test_types_without_a_head_are_folded_and_stay_reachable(browser):
    script = """
      const words = (selector) => $$(selector).map((own) => own.textContent.trim());
      const bare = words(".bare a"), nav = words("#nav a");
      const filters = $$(".filter").map((filter) => filter.dataset.type);
      const rows = $$(".aside tbody tr").map((row) => row.cells[0].textContent);
      $(".bare a").click(); await tick(150);
      const opened = words("#nav a[aria-current]");
      return { bare, nav, filters, rows, opened, title: document.title };
    """
    seen = browser.visit(report_html(hs.load("atlas:mini"), light=True), script)
    assert seen.errors == []
    found = seen.found
    assert "induction" in found["nav"]
    assert "coreference" in found["bare"]
    for shown in (found["nav"], found["filters"], found["rows"]):
        assert not {*shown} & {*found["bare"]}
    assert found["opened"] == found["bare"][:1]
    assert found["title"].startswith(f"{found['bare'][0]} – mini")


def test_the_legend_shows_the_signs_that_cells_have_alone(browser, page):
    script = "return $$('.signs li').map((li) => li.querySelector('.sign').className)"
    signs = " ".join(browser.visit(page, script).found)
    assert "type-unclassified" in signs
    assert "below-baseline" not in signs
    drawn = browser.visit(report_html(hs.load("atlas:smollm2"), light=True), script).found
    for sign in ("type-undecided", "below-baseline", "of-sink"):
        assert any(sign in classes for classes in drawn)
