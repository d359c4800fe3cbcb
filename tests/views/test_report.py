"""The report in a real browser: no request, every page draws, in print too, and axe passes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.statistics.causes import CAUSAL_EFFECT, CAUSE_COLUMNS
from headscope.statistics.columns import EFFECT_COLUMNS
from headscope.views.report import report_html


def test_the_page_asks_nobody_and_logs_no_error(browser, page):
    script = """
      const pages = ["", "scatter", "about", "L1H2", "L0H0", "type=induction", "type=positional"];
      const lengths = [];
      for (const hash of pages) { await go(hash); lengths.push($("#main").textContent.length); }
      return lengths;
    """
    seen = browser.visit(page, script)
    assert seen.errors == []
    assert seen.requests == []
    assert min(seen.found) > 100


def test_points_of_the_scatter_are_heads_on_any_axes(browser, page):
    script = """
      await go("scatter");
      const before = $$(".dot").map((d) => d.getAttribute("cx"));
      const select = $("#axis-x"); select.value = "lift of induction/repeat";
      select.dispatchEvent(new Event("change")); await tick();
      const dots = $$(".dot").map((d) => [d.dataset.head, Number(d.getAttribute("cx"))]);
      return { before, dots };
    """
    seen = browser.visit(page, script)
    assert seen.errors == []
    dots = dict(seen.found["dots"])
    assert len(dots) == 6
    assert max(dots, key=dots.get) == "L1H2"


def test_points_of_types_differ_in_their_letters_and_keep_their_size_on_a_telephone(browser):
    html = report_html(hs.load("atlas:smollm2"), light=True)
    script = """
      await go("scatter");
      const svg = $(".plot svg");
      const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
      const typeOf = (dot) => dot.getAttribute("class").split(" ")[1];
      const letters = $$(".dot").map((dot) => [typeOf(dot), dot.parentNode.textContent]);
      const font = (selector) => scale * parseFloat(getComputedStyle($(selector)).fontSize);
      const key = $$(".legend .chip").map((chip) => chip.textContent);
      return { letters, fonts: [font(".plot > svg > text"), font(".dot-letter")], key };
    """
    for width in (1280, 390):
        found = browser.open(html, width=width).run(script).found
        letter_of = dict(found["letters"])
        assert len(letter_of) == len({*letter_of.values()}) > 6
        assert min(found["fonts"]) >= 9.5
        named = {chip.split(" ")[0] for chip in found["key"]}
        assert {letter for letter in letter_of.values() if letter} <= named


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_with_labels_or_contrast(browser, explained, scheme):
    places = ["", "scatter", "about", "L1H2", "type=induction"]
    assert browser.open(explained, scheme=scheme).axe_faults(places) == {}


def test_a_head_page_shows_what_was_measured_of_the_head_alone(browser, run):
    effect = dict.fromkeys(EFFECT_COLUMNS, np.nan) | {
        "layer": 1,
        "head": 2,
        "type": "induction",
        "effect": "repeat",
        "n": 210,
        "lift": 2.5,
        "ci_low": 2.25,
        "ci_high": 2.75,
        "tagged": True,
    }
    facts = {"meaning": "raises it", "sign": 1, "second": ""}
    cause = dict.fromkeys(CAUSE_COLUMNS, np.nan) | {
        "kind": "head",
        "layer": 1,
        "head": 2,
        "type": "induction",
        "behaviour": "repeat",
        "how": "mean",
        "effect": -1.5,
        "ci_low": -1.75,
        "ci_high": -1.25,
        "control": -0.125,
        "verdict": CAUSAL_EFFECT,
    }
    measured = replace(
        run,
        heads=run.heads.assign(explained=0.91, feature_model="rule <b>"),
        effects=pd.DataFrame([effect]),
        causes=pd.DataFrame([cause]),
        feature_models=pd.DataFrame([(1, 2, 0.91)], columns=["layer", "head", "explained"]),
        info={**run.info, "effects": {"writes/induction/repeat": facts}},
    )
    script = """
      const said = {};
      for (const name of ["L1H2", "L0H0"]) {
        await go(name);
        said[name] = $$(".deeds li, .causes li").map((li) => li.textContent);
      }
      return said;
    """
    seen = browser.visit(report_html(measured), script)
    assert seen.errors == []
    numbers = ("lift +2.50 [+2.25, +2.75]", "91%", "-1.500 nats")
    own = seen.found["L1H2"]
    assert [number in said for number, said in zip(numbers, own, strict=True)] == [True] * 3
    assert own[1].endswith("rule <b>")
    assert seen.found["L0H0"][0] == "Direct effect: none near a tag."
    assert len(seen.found["L0H0"]) == 2  # and its feature model


def test_a_lift_names_its_control_and_relations_are_counted_as_in_why(browser, run):
    evidence = run.evidence.copy()
    first = run.heads.loc["L0H0"]
    is_primary = (evidence["layer"] == 0) & (evidence["head"] == 0)
    is_primary &= evidence["relation"] == first["relation"]
    evidence.loc[is_primary, ["mass", "control", "matched_control", "lift"]] = [0.7, 0.1, 0.34, 0.6]
    script = """
      const facts = $$(".facts div").map((pair) => pair.textContent);
      await go("L0H0");
      return { facts, sentence: $(".plain").textContent };
    """
    page = report_html(replace(run, evidence=evidence))
    seen = browser.visit(page, script)
    assert seen.errors == []
    # 0.34 is the control that decides, 0.10 that of the lift
    masses, lift = seen.found["sentence"].split("lift")
    assert re.findall(r"0\.\d\d", masses) == ["0.70", "0.34", "0.10"]
    assert lift.split("0.60")[0].strip() == "over control keys"
    (relations,) = [fact for fact in seen.found["facts"] if fact.startswith("relations")]
    counts = [int(count) for count in re.findall(r"\d+", relations)]
    assert counts == [run.info["decidable"]["relations"], run.info["decidable"]["of"]]
    assert f"{counts[0]} of {counts[1]} relations" in hs.why(run, "L0H0").notes[1]


def test_the_sentence_on_a_head_names_the_input_of_its_numbers(browser):
    script = """
      const sentences = [];
      for (const name of ["L2H5", "L5H3"]) {
        await go(name);
        sentences.push($(".plain").textContent);
      }
      return sentences;
    """
    seen = browser.visit(report_html(hs.load("atlas:mini"), light=True), script)
    assert seen.errors == []
    # the meaning of the second relation names repeated random tokens
    assert [sentence.startswith("In text, 0.") for sentence in seen.found] == [True, False]


def test_the_counts_of_tags_say_if_some_heads_have_several(browser, run):
    for shown, has_several in ((hs.load("atlas:mini"), True), (run, False)):
        findings = browser.visit(
            report_html(shown, light=True), 'return $(".findings").textContent;'
        ).found
        tagged, in_brackets = re.findall(r"^(\d+) of .*?\((.*?)\)", findings)[0]
        tags = sum(int(count) for count in re.findall(r"\d+", in_brackets))
        assert (tags > int(tagged)) == has_several == ("several" in in_brackets)


def test_bars_mark_the_control_and_where_there_is_one_the_matched_control(browser, run):
    script = """
      await go("L0H0");
      const at = (bar, name) => bar.querySelector(name)?.style.left ?? null;
      const bars = $$(".relation").map((bar) => [
        bar.querySelector(".name > .code").textContent,
        [at(bar, ".control"), at(bar, ".matched")],
      ]);
      return { bars, legend: $(".bars-legend").textContent };
    """
    for matched in (np.nan, 0.34):
        changed = run.evidence.copy()
        changed["matched_control"] = matched
        changed["control"] = 0.12
        seen = browser.visit(report_html(replace(run, evidence=changed)), script)
        assert seen.errors == []
        marks = dict(seen.found["bars"])
        assert marks
        there = not np.isnan(matched)
        assert {tuple(left) for left in marks.values()} == {("12%", "34%" if there else None)}
        assert ("matched" in seen.found["legend"]) == there


PRINTED = """
  await go("L1H2"); await tick(300);
  const whole = document.querySelector("main").getBoundingClientRect().right <= innerWidth;
  const background = getComputedStyle(document.body).backgroundColor;
  return [background, whole, $$("main canvas").map((own) => own.toDataURL())];
"""


def test_paper_is_white_whole_and_has_the_patterns_whatever_the_screen_shows(browser, run):
    means = np.tril(np.random.default_rng(0).random((2, 3, 24, 24)))
    means /= means.sum(-1, keepdims=True)
    keys = browser.open(report_html(replace(run, means=means), light=True))
    papers = []
    for scheme in ("light", "dark"):
        keys.page.emulate_media(media="print", color_scheme=scheme)
        papers.append(keys.run(PRINTED).found)
    background, is_whole, pictures = papers[0]
    assert background == "rgb(255, 255, 255)"
    assert is_whole
    assert len(pictures) > 0
    assert papers[1] == papers[0]  # a canvas is drawn again in the colours of paper
