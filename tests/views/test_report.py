"""The report in a real browser: it draws, it can be used, and untrusted tokens stay text."""

from __future__ import annotations

import base64
import importlib.util
import json
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.measure.example import Example
from headscope.views.report import report_html
from headscope.views.report.data import pack, page_data, shortened, to_json
from headscope.views.report.packed import packed
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


def test_examples_are_arcs_over_tokens_and_evil_ones_stay_text(page, tmp_path):
    script = """
      await go("L1H2");
      const one = $(".example"), say = () => one.querySelector(".said").textContent;
      const first = { said: say(), arcs: one.querySelectorAll(".arc").length, aimed: one.querySelectorAll(".arc.aimed").length };
      const folded = [...one.querySelectorAll(".strip-tokens > *")].map((t) => t.textContent);
      const fold = one.querySelector(".fold");
      if (!fold.hidden) { fold.click(); await tick(); }
      const row = one.querySelector(".strip-tokens");
      const shown = {
        tokens: [...row.querySelectorAll(".tok")].map((t) => t.textContent),
        query: row.querySelector(".query").textContent, gaps: [...row.querySelectorAll(".gap")].map((g) => g.title),
        targets: [...row.querySelectorAll(".target")].map((t) => t.textContent),
      };
      row.querySelector('[data-token="2"]').dispatchEvent(new Event("mouseenter")); await tick();
      const over = say();
      row.querySelector('[data-token="2"]').dispatchEvent(new Event("mouseleave")); await tick();
      const after = say();
      row.querySelector('[data-token="3"]').click(); await tick();
      const pinned = [say(), location.hash, row.querySelector('[data-token="3"]').getAttribute("aria-pressed")];
      one.querySelector(".whole").open = true; await tick(200);
      const canvas = one.querySelector("canvas.heat");
      const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      return {
        first, folded, shown, over, after, pinned, painted: pixels.some((v) => v > 0), left: one.querySelector(".whole > .small")?.textContent,
        count: $$(".example").length, bold: $$("#main b").length, title: $("#title").textContent, tab: document.title,
      };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []  # the alert would be one
    found = seen.found
    assert found["painted"]
    assert found["shown"]["tokens"] == [
        "<bos>", EVIL, '"\'<b>&amp;', "⟨RLO⟩abc⟨RLM⟩", "\ufffd", "⟨d83d⟩", "a↵b", " $x$", "end",
    ]  # fmt: skip
    assert found["shown"]["query"] == "end"
    assert found["shown"]["targets"] == [EVIL, "⟨RLO⟩abc⟨RLM⟩"]
    assert found["shown"]["gaps"] == ["left out here: 0.25", "left out here: 0.00"]
    # even attention of a ninth on each token, and a quarter on what the excerpt leaves out
    assert found["first"]["said"].startswith("“end” at 91 looks at tokens left out (…) 0.25")
    assert found["first"]["aimed"] == 2
    assert found["first"]["arcs"] == 10
    assert found["over"].startswith("“\"'<b>&amp;” at 41 looks at")
    assert found["over"].count("0.33") == 3
    assert found["after"] == found["first"]["said"]
    assert found["pinned"][0].endswith("(pinned)")
    assert found["pinned"][1:] == ["#L1H2?pin0=3", "true"]
    assert found["left"].startswith(
        "0.25 of the query's attention is on tokens that are not shown; 2 of its targets are"
    )
    assert found["count"] == 5  # three at once, one by the slider, and the ordinary text
    assert found["bold"] == 0
    assert found["tab"].startswith("six heads </title><b>")


def test_a_long_example_is_folded_to_what_its_query_has_to_do_with(run, tmp_path):
    size = 40
    pattern = np.zeros((size, size), np.float16)
    pattern[:, 0] = 1
    pattern[30, [0, 10]] = [0.2, 0.8]
    long = Example(
        1, 2, "induction/repeat", "best", 0.8, "w", tuple(f"t{i}" for i in range(size)), 30, (10,),
        pattern, positions=tuple(range(size)), length=size, masses=(*[0] * 16, 9, *[0] * 3),
    )  # fmt: skip
    script = """
      await go("L1H2");
      const tokens = () => [...$(".strip-tokens").children].map((t) => t.textContent);
      const folded = tokens();
      $(".fold").click(); await tick();
      const all = tokens().length;
      $(".all-queries").open = true; await tick();
      return { folded, all, columns: $$(".histogram .column").map((c) => Number(c.getAttribute("height"))) };
    """
    seen = visit(report_html(replace(run, examples=[long])), script, tmp_path)
    assert seen.errors == []
    near = [[f"t{i}" for i in range(at - 2, at + 3)] for at in (10, 30)]
    beginning = ["t0", "t1", "t2"]  # beside the first token, on which the rest lies
    assert seen.found["folded"] == [*beginning, "…", *near[0], "…", *near[1], "…"]
    assert seen.found["all"] == size
    assert np.flatnonzero(seen.found["columns"]).tolist() == [16]


def test_circuitsvis_is_unpacked_when_it_is_opened_and_marks_the_target(page, tmp_path):
    script = """
      await go("L1H2"); await tick(300);
      const before = [library === null, $$("iframe").length];
      const one = $(".example .whole"); one.open = true; await tick(200);
      const still = library === null;
      one.querySelector(".pattern").open = true; await tick(3000);
      const inner = one.querySelector("iframe").contentDocument;
      const drawn = inner.querySelectorAll("#view canvas, #view img, #view svg").length;
      return { before, still, drawn, page: one.querySelector("iframe").srcdoc, text: inner.body.textContent.length, colour: getComputedStyle(inner.body).backgroundColor, own: getComputedStyle(document.body).backgroundColor };
    """
    for scheme in ("light", "dark"):
        seen = visit(page, script, tmp_path, scheme=scheme)
        assert seen.errors == []
        assert seen.found["before"] == [True, 0]
        assert seen.found["still"]
        assert seen.found["drawn"] > 0
        assert "▶ 91:end" in seen.found["page"]
        assert "★ 40:\\u003c/script" in seen.found["page"]
        assert seen.found["colour"] == seen.found["own"]


def test_a_light_page_has_no_circuitsvis_and_needs_no_eval(run, tmp_path):
    light = report_html(run, light=True)
    assert "unsafe-eval" not in light
    assert len(light) < len(report_html(run)) - 300_000
    script = """
      await go("L1H2"); $(".whole").open = true; await tick(200);
      return [$$("canvas.heat").length, $$(".pattern").length];
    """
    seen = visit(light, script, tmp_path)
    assert seen.errors == []
    assert seen.found == [1, 0]


def test_cells_are_pictures_of_mean_patterns_where_the_run_has_them(run, page, tmp_path):
    script = """
      const cell = $('.cell[data-head="L0H0"]'), canvas = cell.querySelector("canvas");
      if (!canvas) return null;
      const shades = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.filter((_, i) => i % 4 === 3);
      return { side: canvas.width, shades: [...shades], sink: cell.querySelector(".sink").style.height };
    """
    means = np.zeros((2, 3, 24, 24))
    place = np.arange(1, 24)
    means[:, :, place, place - 1] = 0.81
    means[..., 0] += 1 - means.sum(-1)
    heads = run.heads.assign(first_token_mass=0.37)
    seen = visit(report_html(replace(run, heads=heads, means=means)), script, tmp_path)
    assert seen.errors == []
    expected = np.zeros((23, 23))
    expected[place[1:] - 1, place[1:] - 2] = round(
        0.9 * 255
    )  # square roots; the first token is out
    assert seen.found["side"] == 23
    assert np.abs(np.reshape(seen.found["shades"], (23, 23)) - expected).max() <= 1
    assert seen.found["sink"] == "37%"
    older = visit(report_html(replace(run, means=None)), script, tmp_path)
    assert older.found is None
    assert older.errors == []


def test_the_atlas_says_its_findings_in_words_and_keeps_its_filter_in_the_address(page, tmp_path):
    script = """
      const said = $(".findings").textContent;
      $('.filter[data-type="induction"]').click(); await tick();
      const kept = location.hash;
      await go("L1H2"); await go(kept.slice(1));
      return { said, kept, lit: $$(".cell:not(.faded)").map((c) => c.dataset.head) };
    """
    seen = visit(page, script, tmp_path)
    assert seen.errors == []
    assert "of 6 heads earned a tag for where they look" in seen.found["said"]
    assert "1 induction (L1; strongest L1H2, " in seen.found["said"]
    assert seen.found["kept"] == "#?type=induction"
    assert seen.found["lit"] == ["L1H2"]


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


def test_the_circuitsvis_script_goes_in_packed_and_cannot_end_its_element(page):
    script = circuitsvis_script()
    assert "</script" not in script
    small = packed(script)
    assert page.count(small.replace("+", "&#43;")) + page.count(small) == 1
    size, _, text = small.partition(":")
    raw = zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)
    assert (len(raw), raw.decode()) == (int(size), script)


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, "stored"])
def test_the_page_unpacks_what_was_deflated_in_any_way(page, tmp_path, strategy):
    rng = np.random.default_rng(0)
    texts = ["", "a", "headscope " * 3000, "".join(map(chr, rng.integers(32, 0x2000, 20_000)))]
    given = []
    for text in texts:
        raw = text.encode()
        level, how = (0, 0) if strategy == "stored" else (9, strategy)
        deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, how)
        small = deflate.compress(raw) + deflate.flush()
        given.append(f"{len(raw)}:{base64.b64encode(small).decode()}")
    script = f"return {json.dumps(given)}.map(textOf);"
    assert visit(page, script, tmp_path).found == texts


def test_json_in_the_page_has_nothing_that_html_could_read():
    text = to_json({"a": ["</script>", "<!--", "é\u2028", "\ud83d"]})
    assert not set("<>&") & set(text)
    assert text.isascii()


def test_packed_patterns_hold_the_lower_triangle_row_by_row():
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
