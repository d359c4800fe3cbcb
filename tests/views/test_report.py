"""The report in a real browser: it draws, it can be used, and untrusted tokens stay text."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.measure.example import Example
from headscope.views.report import report_html
from headscope.views.report.data import pack, page_data, shortened, to_json
from headscope.views.report.page import circuitsvis_script
from tests.browser import find_browser, visit

EVIL = "</script><script>alert(1)</script>"
TOKENS = (
    "<bos>",
    EVIL,
    "\"'<b>&amp;",
    "\u202eabc\u200f",
    "\ufffd",
    "\ud83d",
    "a\nb",
    " $x$",
    "end",
)


@pytest.fixture(scope="module")
def run():
    """2 layers × 3 heads on repeats: L0H0 looks at the previous token, L1H2 is an induction head."""
    n, documents = 30, 10
    a = np.zeros((2, 3, 2 * n + 1, 2 * n + 1))
    place = np.arange(1, 2 * n + 1)
    a[0, 0, place, place - 1] = 0.9
    second = np.arange(n + 1, 2 * n + 1)
    a[1, 2, second, second - n + 1] = 0.8
    a[1, 1] = np.tril(np.ones((2 * n + 1, 2 * n + 1))) / np.arange(1, 2 * n + 2)[:, None]
    a[..., 0] += 1 - a.sum(-1)
    tokens = [["<bos>", *[f"w{i}-{j}" for j in range(n)] * 2] for i in range(documents)]
    made = hs.score_patterns([a] * documents, None, tokens, name="six heads </title><b>")
    size = len(TOKENS)
    pattern = (np.tril(np.ones((size, size))) / np.arange(1, size + 1)[:, None]).astype(np.float16)
    examples = [
        Example(
            1,
            2,
            "induction/repeat",
            kind,
            0.8,
            "repeat#0",
            TOKENS,
            size - 1,
            (1, 3),
            pattern,
            positions=(0, *range(40, 46), 90, 91),
            left_out=(0.25, 0.001),
            length=120,
            more_targets=2,
        )
        for kind in ("best", "quarter 1", "quarter 4")
    ]
    examples.append(Example(1, 2, "", "ordinary", float("nan"), "text#0", TOKENS, -1, (), pattern))
    return hs.Run(made.heads, made.evidence, made.rules, made.info, None, None, examples)


@pytest.fixture(scope="module")
def page(run):
    return report_html(run)


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


@pytest.fixture(scope="module")
def explained(run):
    """The page of a run after `explain`: a row of `explained` and `rule` per head."""
    shares = [0.91, 0.5, -0.2, 1.0, 0.07, 0.349]
    heads = run.heads.assign(explained=shares, rule=[f"rule {i} <b>" for i in range(6)])
    accounts = pd.DataFrame([(0, 0, 0.91)], columns=["layer", "head", "explained"])
    return report_html(replace(run, heads=heads, accounts=accounts))


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


def test_a_view_is_drawn_with_its_tokens_and_evil_ones_stay_text(page, tmp_path):
    script = """
      const given = [], left = [], draw = drawPattern;
      drawPattern = (id, tokens, attention) => { given.push(tokens); left.push(...[1, 9].map((i) => Number(attention[i][0].toFixed(2)))); draw(id, tokens, attention); };
      await go("L1H2"); await look($(".circuit"));
      const view = $(".circuit"), canvas = view.querySelector("canvas");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const row = $(".tokens");
      return {
        painted: pixels.some((v) => v > 0), given,
        tokens: [...row.querySelectorAll(".token")].map((t) => t.textContent),
        query: row.querySelector(".query").textContent,
        targets: [...row.querySelectorAll(".target")].map((t) => t.textContent),
        gaps: [...row.querySelectorAll(".gap")].map((g) => g.textContent),
        at: [...row.querySelectorAll(".at")].map((g) => g.textContent),
        said: row.nextElementSibling.textContent, left,
        details: $$(".examples > details").length, bold: $$("#main b").length,
        title: $("#title").textContent, tab: document.title,
      };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []  # the alert would be one
    found = seen.found
    assert found["painted"]
    assert found["tokens"] == [
        "<bos>", EVIL, '"\'<b>&amp;', "⟨RLO⟩abc⟨RLM⟩", "\ufffd", "⟨d83d⟩", "a↵b", " $x$", "end",
    ]  # fmt: skip
    positions = (0, *range(40, 46), 90, 91)
    named = [f"{at}:{token}" for at, token in zip(positions, found["tokens"], strict=True)]
    assert found["given"] == [["(not shown)", *named]]
    assert found["gaps"] == [" … 0.25 … ", " … "]
    assert found["at"] == ["40:", "90:", " …"]
    assert found["said"].startswith(
        "0.25 of the boxed token's attention is on tokens that are not shown; 2 of its targets are"
    )
    assert found["left"] == [0, 0.25]
    assert found["query"] == "end"
    assert found["targets"] == [EVIL, "⟨RLO⟩abc⟨RLM⟩"]
    assert found["details"] == 4
    assert found["bold"] == 0
    assert found["tab"].startswith("six heads </title><b>")


def test_views_are_drawn_when_they_come_into_sight(page, tmp_path):
    script = """
      await go("L1H2"); await tick(300);
      const before = $$(".circuit").length;
      const last = $$(".examples > details").at(-1);
      last.open = true; await tick(100);
      const unseen = last.querySelectorAll("canvas").length;
      await look(last);
      return { before, unseen, drawn: last.querySelectorAll("canvas").length };
    """
    seen = visit(page, script, tmp_path)
    assert seen.found["before"] == 1
    assert seen.found["unseen"] == 0
    assert seen.found["drawn"] == 1


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


def test_the_circuitsvis_script_goes_in_once_and_cannot_end_its_element(page):
    script = circuitsvis_script()
    assert "</script" not in script
    assert page.count(script[:2000]) == 1


def test_json_in_the_page_has_nothing_that_html_could_read():
    text = to_json({"a": ["</script>", "<!--", "é\u2028", "\ud83d"]})
    assert not set("<>&") & set(text)
    assert text.isascii()


def test_packed_patterns_hold_the_lower_triangle_row_by_row():
    import base64

    pattern = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.2, 0.6]], np.float16)
    assert list(base64.b64decode(pack(pattern))) == [255, 128, 128, 51, 51, 153]


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
    assert f"{shown} nats per token; token frequencies alone: 5.86 (484 tokens; better on " in line
    assert strong == (model != 2.3)
    assert ("worse than the frequencies" in line) == (model != 2.3)
    bare = visit(report_html(run), script, tmp_path)
    assert bare.found["atlas"] == [[], 0]


def test_every_number_of_the_page_is_one_of_the_tables(run):
    data = page_data(run)
    assert len(data["rows"]) == len(run.heads)
    for relation in data["relations"]:
        own = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == relation["id"]]
        for column in ("mass", "control", "lift", "hit_rate"):
            expected = own.sort_values(["layer", "head"])[column]
            shown = np.array([np.nan if v is None else v for v in relation[column]])
            np.testing.assert_allclose(shown, expected, rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("decimals", [3, 4, 5, 17])
def test_numbers_of_the_page_are_what_four_digits_say(decimals):
    rng = np.random.default_rng(decimals)
    values = np.round(rng.normal(size=3000), decimals) * 10.0 ** rng.integers(-40, 40, 3000)
    plain = np.round(rng.normal(size=3000) * 10, decimals)
    odd = np.array([0.0, -0.0, 99995.0, 9.9995, 1e-300, 5e-324])
    every = np.concatenate([values, plain, odd])
    assert shortened(every) == [float(f"{value:.4g}") for value in every]
    assert shortened(np.array([np.nan])) == [None]
