"""The report on paper, and on a telephone: nothing dark, cut off, empty or hidden without a hint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headscope.views.report import report_html
from tests.browser import opened

PLACES = ("", "#L0H0", "#L1H2", "#type=positional", "#type=induction", "#about")
WIDER = """
(async () => {
  for (let i = 0; i < 3; i++) await new Promise((go) => requestAnimationFrame(go));
  return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && ["auto", "scroll"].includes(getComputedStyle(e).overflowX)).map((e) => {
    const style = getComputedStyle(e), fade = (name) => Number.parseFloat(style.getPropertyValue(name));
    return { class: e.className, before: e.scrollLeft, after: e.scrollWidth - e.clientWidth - e.scrollLeft, start: fade("--fade-start"), end: fade("--fade-end"), mask: style.maskImage, html: e.outerHTML.slice(0, 80) };
  });
})()
"""


PRINTED = """
  await go("%s"); await tick(300);
  const whole = document.querySelector("main").getBoundingClientRect().right <= innerWidth;
  return [getComputedStyle(document.body).backgroundColor, whole, $$("main canvas").map((own) => own.toDataURL())];
"""


@pytest.mark.parametrize("place", PLACES[:4])
def test_paper_is_white_whole_and_has_the_patterns_whatever_the_screen_shows(run, tmp_path, place):
    means = np.tril(np.random.default_rng(0).random((2, 3, 24, 24)))
    means /= means.sum(-1, keepdims=True)
    keys = opened(report_html(replace(run, means=means), light=True), tmp_path)
    papers = []
    for scheme in ("light", "dark"):
        keys.scheme(scheme, "print")
        papers.append(keys.run(PRINTED % place.lstrip("#")).found)
    background, is_whole, pictures = papers[0]
    assert background == "rgb(255, 255, 255)"
    assert is_whole
    assert len(pictures) > 0
    assert papers[1] == papers[0]  # a canvas is drawn again in the colours of paper


@pytest.mark.parametrize("place", PLACES)
def test_what_scrolls_sideways_on_a_telephone_fades_where_there_is_more(page, tmp_path, place):
    keys = opened(page, tmp_path, width=390)
    keys.read(f"location.hash = '{place}'")
    assert keys.read("document.documentElement.scrollWidth <= innerWidth")
    for box in keys.read(f"await {WIDER}"):
        assert {"scroll", "strip-scroll"} & {*box["class"].split()}, box
        assert "linear-gradient" in box["mask"]
        assert (box["end"] > 0) == (box["after"] > 0), box
        assert (box["start"] > 0) == (box["before"] > 0), box
