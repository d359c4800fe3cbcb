"""The report's first page in a real browser: cells, filters, search, findings and counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headscope.measure.mean_pattern import Picture
from headscope.views.report import report_html
from tests.browser import visit


def test_the_atlas_has_a_cell_for_every_head_and_can_be_filtered_searched_and_clicked(
    page, tmp_path
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
      const cell = $('.cell[data-head="L0H0"]'); cell.focus(); await tick();
      const tip = $("#tip").textContent;
      cell.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
      const moved = document.activeElement.dataset.head;
      $("#find").value = "9.9"; $("#search").requestSubmit(); await tick();
      return { cells, lit, all, searched, clicked, tip, moved, bad: $("#find").validationMessage };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []
    assert len(seen.found["cells"]) == 6
    assert dict(seen.found["cells"])["L1H2"] == "induction"
    assert dict(seen.found["cells"])["L0H0"] == "positional"
    assert seen.found["lit"] == ["L1H2"]
    assert seen.found["all"] == 6
    assert seen.found["searched"] == ["#L1H2", "L1H2 induction"]
    assert seen.found["clicked"] == "#L0H0"
    assert "lift" in seen.found["tip"]
    assert seen.found["moved"] == "L0H1"
    assert seen.found["bad"] == "No head 9.9; they go up to L1H2."


def test_a_map_beside_the_atlas_shows_what_rules_explain(page, explained, tmp_path):
    script = """
      const cells = $$(".share").map((c) => [c.dataset.explained, c.textContent, c.style.getPropertyValue("--strength")]);
      const said = $(".coverage .small")?.textContent, own = $('.share[data-explained="L0H1"]');
      own?.focus(); await tick();
      const tip = $("#tip").textContent;
      own?.click(); await tick(150);
      return { cells, said, tip, at: location.hash };
    """
    seen = visit(explained, script, tmp_path)
    assert seen.errors == []
    assert seen.found["cells"] == [
        ["L0H0", "91", "0.91"],
        ["L0H1", "50", "0.50"],
        ["L0H2", "-20", "0.00"],
        ["L1H0", "100", "1.00"],
        ["L1H1", "7", "0.07"],
        ["L1H2", "35", "0.35"],
    ]
    assert "44 on average" in seen.found["said"]
    assert seen.found["tip"] == "L0H1, 50 per cent explained: rule 1 <b>"
    assert seen.found["at"] == "#L0H1"
    assert visit(page, script, tmp_path).found["cells"] == []


def test_a_type_with_too_few_queries_to_tell_has_no_count(run, tmp_path):
    other = run.evidence["type"] != "positional"
    few = run.evidence.assign(
        n=run.evidence["n"].where(other, 49), tagged=run.evidence["tagged"] & other
    )
    script = """
      const counts = Object.fromEntries(
        $$(".filter").map((b) => [b.dataset.type, b.querySelector(".count").textContent]));
      const rows = Object.fromEntries(
        $$("tbody tr").map((r) => [...r.children].map((c) => c.textContent)).map((r) => [r[0], r.slice(1)]));
      await go("type=positional");
      return { counts, row: rows.positional, other: rows.induction, page: $("#main").textContent };
    """
    seen = visit(report_html(replace(run, evidence=few)), script, tmp_path)
    assert seen.errors == []
    assert seen.found["counts"]["positional"] == ""
    assert seen.found["counts"]["induction"] == "1"
    assert seen.found["row"] == ["", "", "", "too few queries to tell"]
    assert seen.found["other"][0] == "1"
    assert "too few queries to give any head this tag" in seen.found["page"]


@pytest.mark.parametrize("model", [2.3, 9.75, None])
def test_the_loss_on_its_own_text_is_shown_and_strong_where_counting_is_better(
    run, tmp_path, model
):
    info = {
        **run.info,
        "text_loss": {
            "model": model,
            "unigram": 5.86,
            "tokens": 484,
            "windows": 8,
            "better": 8 if model == 2.3 else 0,
        },
    }
    script = """
      const say = () => [$$(".loss").map((p) => p.textContent), $$("strong.unsound").length];
      const atlas = say(); await go("about"); return { atlas, about: say() };
    """
    seen = visit(report_html(replace(run, info=info)), script, tmp_path)
    assert seen.errors == []
    assert seen.found["atlas"] == seen.found["about"]
    (line,), strong = seen.found["atlas"]
    shown = "–" if model is None else f"{model:.2f}"
    assert (
        f"{shown} nats per token; token frequencies alone: 5.86 (484 tokens; the model is better in "
        in line
    )
    assert strong == (model != 2.3)
    assert ("worse than the frequencies" in line) == (model != 2.3)
    bare = visit(report_html(run), script, tmp_path)
    assert bare.found["atlas"] == [[], 0]


def test_a_head_is_drawn_on_the_stimulus_of_its_primary_relation_and_says_so(run, tmp_path):
    script = """
      const canvas = (q) => { const own = $(q); const data = own.getContext("2d").getImageData(0, 0, own.width, own.height).data; return [...data].filter((_, i) => i % 4 === 3); };
      const said = $(".atlas-grid > .small").textContent;
      const cell = $('.cell[data-head="L1H2"]'); cell.focus(); await tick();
      const tip = $("#tip").textContent;
      $('.cell[data-head="L0H0"]').focus(); await tick();
      const other = $("#tip").textContent;
      const shades = canvas('.cell[data-head="L1H2"] canvas');
      await go("L1H2");
      const head = [canvas(".large-thumb canvas"), $(".thumb-figure figcaption").textContent, $(".large-thumb").getAttribute("aria-label")];
      await go("L0H0");
      const text = $(".thumb-figure figcaption")?.textContent;
      await go("type=induction");
      return { said, tip, other, shades, head, text, type: [canvas(".mini canvas"), $(".mini").title] };
    """
    pattern = np.zeros((24, 24))
    pattern[np.arange(12, 22), np.arange(2, 12)] = 0.81
    means = np.zeros((2, 3, 24, 24))
    means[0, 0, 2, 1] = 1
    pictures = {(1, 2): Picture("repeat", pattern)}
    seen = visit(report_html(replace(run, means=means, pictures=pictures)), script, tmp_path)
    assert seen.errors == []
    found = seen.found
    expected = np.where(pattern[1:, 1:] > 0, round(0.9 * 255), 0)
    for shades in (found["shades"], found["head"][0], found["type"][0]):
        assert np.abs(np.reshape(shades, (23, 23)) - expected).max() <= 1
    said = "repeated random tokens: the first 11 of a sequence, then the first 12 of its copy"
    for where in ("said", "tip"):
        assert said in found[where]
    assert all(said in text for text in (*found["head"][1:], found["type"][1]))
    for where in ("other", "text"):
        assert "the first 24 tokens of texts" in found[where]
        assert said not in found[where]
    alone = visit(report_html(replace(run, means=None, pictures=pictures)), script, tmp_path)
    assert np.abs(np.reshape(alone.found["shades"], (23, 23)) - expected).max() <= 1
