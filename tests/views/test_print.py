"""The report on paper, and on a telephone: nothing dark, cut off, empty or hidden without a hint."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace

import numpy as np
import pytest

from headscope.views.report import report_html
from tests.browser import opened

PLACES = ("", "#L0H0", "#L1H2", "#type=positional", "#type=induction", "#about")
DARK = ".0902 .0902 .1059"
"""The page's background in dark mode, as a PDF writes it."""
WHOLE = b".23999999 0 0 -.23999999 0 792 cm"
"""How a page's own content begins, and no part of it: in dots of 1/300 inch from above."""
WIDER = """
(async () => {
  for (let i = 0; i < 3; i++) await new Promise((go) => requestAnimationFrame(go));
  return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && ["auto", "scroll"].includes(getComputedStyle(e).overflowX)).map((e) => {
    const style = getComputedStyle(e), fade = (name) => Number.parseFloat(style.getPropertyValue(name));
    return { class: e.className, before: e.scrollLeft, after: e.scrollWidth - e.clientWidth - e.scrollLeft, start: fade("--fade-start"), end: fade("--fade-end"), mask: style.maskImage, html: e.outerHTML.slice(0, 80) };
  });
})()
"""


@dataclass
class Paper:
    """What a PDF's pages hold."""

    fills: list[str]
    """Every colour that something is filled with, page by page."""
    scale: set[str]
    """By which all of it is drawn: 3.125 / 0.24 dots where nothing had to shrink to fit."""
    texts: list[int]
    """Of each page how many pieces of text it shows."""
    pictures: list[bytes]


def paper(pdf: bytes) -> Paper:
    found = Paper([], set(), [], [])
    for part in pdf.split(b"endobj"):
        head, _, rest = part.partition(b"stream")
        if not rest or b"/FlateDecode" not in head:
            continue
        content = zlib.decompressobj().decompress(rest.lstrip(b"\r\n"))
        if b"/Subtype /Image" in head:
            found.pictures.append(content)
        scales = re.findall(rb"^([\d.]+) 0 0 \1 [\d.-]+ [\d.-]+ cm", content, re.M)
        if content.startswith(WHOLE) and scales:
            found.fills += [fill.decode().strip() for fill in re.findall(rb"([\d. ]+) rg", content)]
            found.scale.add(scales[0].decode())
            found.texts.append(len(re.findall(rb"T[jJ]\b", content)))
    return found


@pytest.mark.parametrize("place", PLACES[:4])
def test_paper_is_white_whole_and_has_the_patterns_whatever_the_screen_shows(run, tmp_path, place):
    means = np.tril(np.random.default_rng(0).random((2, 3, 24, 24)))
    page = report_html(replace(run, means=means / means.sum(-1, keepdims=True)))
    keys = opened(page, tmp_path)
    keys.read(f"location.hash = '{place}'")
    papers = {}
    for scheme in ("light", "dark"):
        keys.scheme(scheme)
        assert keys.read("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
        papers[scheme] = paper(keys.pdf())
    canvases = keys.read("document.querySelectorAll('main canvas').length")
    light, dark = papers["light"], papers["dark"]
    for each in (light, dark):
        assert "1 1 1" in each.fills
        assert DARK not in each.fills
        assert each.scale == {"3.125"}  # no table wider than the paper
        assert all(count > 0 for count in each.texts)
    # a canvas keeps what was drawn on it: it is drawn again in the colours of paper
    assert canvases > 0
    assert len(light.pictures) >= canvases
    assert dark.pictures == light.pictures


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
