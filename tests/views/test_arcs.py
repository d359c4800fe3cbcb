"""Examples in a real browser: arcs over tokens, folds, pins, and untrusted tokens stay text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headscope.measure.example import Example
from headscope.views.report import report_html

EVIL = "</script><script>alert(1)</script>"


def test_examples_are_arcs_over_tokens_and_evil_ones_stay_text(browser, page):
    script = """
      await go("L1H2");
      const one = $(".example"), say = () => one.querySelector(".message").textContent;
      const first = {
        said: say(),
        arcs: one.querySelectorAll(".arc").length,
        aimed: one.querySelectorAll(".arc.aimed").length,
      };
      const fold = one.querySelector(".fold");
      if (!fold.hidden) { fold.click(); await tick(); }
      const row = one.querySelector(".strip-tokens");
      const shown = {
        tokens: [...row.querySelectorAll(".tok")].map((t) => t.textContent),
        query: row.querySelector(".query").textContent,
        gaps: [...row.querySelectorAll(".gap")].map((gap) => gap.title),
        targets: [...row.querySelectorAll(".target")].map((t) => t.textContent),
      };
      row.querySelector('[data-token="2"]').dispatchEvent(new Event("mouseenter")); await tick();
      const over = say();
      row.querySelector('[data-token="2"]').dispatchEvent(new Event("mouseleave")); await tick();
      const after = say();
      const token = row.querySelector('[data-token="3"]');
      token.click(); await tick();
      const pinned = [say(), location.hash, token.getAttribute("aria-pressed")];
      return {
        first, shown, over, after, pinned, bold: $$("#main b").length, tab: document.title,
      };
    """
    seen = browser.visit(page, script)
    assert seen.errors == []  # the alert would be one
    found = seen.found
    assert found["shown"]["tokens"] == [
        "<bos>",
        EVIL,
        "\"'<b>&amp;",
        "⟨RLO⟩abc⟨RLM⟩",
        "\ufffd",
        "⟨d83d⟩",
        "a↵b",
        " $x$",
        "end",
    ]
    assert found["shown"]["query"] == "end"
    assert found["shown"]["targets"] == [EVIL, "⟨RLO⟩abc⟨RLM⟩"]
    assert found["shown"]["gaps"] == ["left out here: 0.25", "left out here: 0.00"]
    # even attention of a ninth on each token, and a quarter on what the excerpt leaves out
    assert found["first"]["said"].startswith("“end” at 91 attends to 39 omitted tokens (…) 0.25")
    assert found["first"]["aimed"] == 2
    assert found["first"]["arcs"] == 10
    assert found["over"].startswith("“\"'<b>&amp;” at 41 attends to")
    assert found["over"].count("0.33") == 3
    assert found["after"] == found["first"]["said"]
    assert found["pinned"][0].endswith("(pinned)")
    assert found["pinned"][1:] == ["#L1H2?pin0=3", "true"]
    assert found["bold"] == 0
    assert found["tab"].startswith("L1H2 – six heads </title><b>")


def test_a_long_example_is_folded_to_what_its_query_has_to_do_with(browser, run):
    size = 40
    pattern = np.zeros((size, size), np.float16)
    pattern[:, 0] = 1
    pattern[30, [0, 10]] = [0.2, 0.8]
    long = Example(
        layer=1,
        head=2,
        relation="induction/repeat",
        kind="best",
        mass=0.8,
        window="w",
        tokens=tuple(f"t{i}" for i in range(size)),
        query=30,
        targets=(10,),
        pattern=pattern,
        positions=tuple(range(size)),
        left_out=(),
        length=size,
        masses=(*[0] * 16, 9, *[0] * 3),
    )
    script = """
      await go("L1H2");
      const tokens = () => [...$(".strip-tokens").children].map((t) => t.textContent);
      const folded = tokens();
      $(".fold").click(); await tick();
      const all = tokens().length;
      return { folded, all };
    """
    seen = browser.visit(report_html(replace(run, examples=[long])), script)
    assert seen.errors == []
    near = [[f"t{i}" for i in range(at - 2, at + 3)] for at in (10, 30)]
    beginning = ["t0", "t1", "t2"]  # beside the first token, on which the rest lies
    assert seen.found["folded"] == [*beginning, "…", *near[0], "…", *near[1], "…"]
    assert seen.found["all"] == size


def test_the_strongest_key_of_even_attention_is_shown_and_sums_are_drawn_as_such(browser, run):
    size = 40
    pattern = np.tril(np.full((size, size), 0.02, np.float16))
    pattern[30, 10] = 0.04  # below what is written, and far from the query
    even = Example(
        layer=1,
        head=2,
        relation="induction/repeat",
        kind="best",
        mass=0.1,
        window="w",
        tokens=tuple(f"t{i}" for i in range(size)),
        query=30,
        targets=(),
        pattern=pattern,
        positions=tuple(range(size)),
        left_out=(),
        length=size,
    )
    script = """
      await go("L1H2");
      const one = $(".example"), all = (selector) => [...one.querySelectorAll(selector)];
      return {
        tokens: all(".strip-tokens > *").map((t) => t.textContent),
        summed: all(".arc.summed").length,
        said: all(".message")[0].textContent,
      };
    """
    found = browser.visit(report_html(replace(run, examples=[even])), script).found
    near = [[f"t{i}" for i in range(at - 2, at + 3)] for at in (10, 30)]
    assert found["tokens"] == ["t0", "…", *near[0], "…", *near[1], "…"]
    assert found["summed"] == 2  # nothing is after the query
    assert "15 omitted tokens (…) 0.30" in found["said"]


def test_circuitsvis_is_unpacked_when_it_is_opened_and_marks_the_target(browser, page):
    script = """
      await go("L1H2"); await tick(300);
      const before = $$("iframe").length;
      const one = $(".example .whole"); one.open = true; await tick(200);
      one.querySelector(".pattern").open = true;
      const inner = () => one.querySelector("iframe")?.contentDocument;
      await settled(() => inner()?.querySelector("#view canvas, #view img, #view svg"));
      return {
        before,
        page: one.querySelector("iframe").srcdoc,
        colour: getComputedStyle(inner().body).backgroundColor,
        own: getComputedStyle(document.body).backgroundColor,
      };
    """
    for scheme in ("light", "dark"):
        seen = browser.visit(page, script, scheme=scheme)
        assert seen.errors == []
        assert seen.found["before"] == 0
        assert "▶ 91:end" in seen.found["page"]
        assert "★ 40:\\u003c/script" in seen.found["page"]
        assert seen.found["colour"] == seen.found["own"]


def test_a_light_page_has_no_circuitsvis_and_needs_no_eval(browser, run):
    light = report_html(run, light=True)
    assert "unsafe-eval" not in light
    assert len(light) < len(report_html(run)) - 300_000
    script = """
      await go("L1H2"); $(".whole").open = true; await tick(200);
      return [$$("canvas.heat").length, $$(".pattern").length];
    """
    seen = browser.visit(light, script)
    assert seen.errors == []
    assert seen.found == [1, 0]
