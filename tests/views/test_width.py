"""No page is wider than its screen, a telephone's or a desk's, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

import headscope as hs
from headscope.views.report import report_html
from tests.browser import Page
from tests.helpers.layout import excess_width, with_every_tag

OPEN = 'document.querySelectorAll("details").forEach((own) => { own.open = true; })'


@pytest.fixture(scope="module")
def mini() -> hs.Run:
    """A run with tables of all types and long names of relations; L0H0 has every tag."""
    return with_every_tag(hs.load("atlas:mini"))


def too_wide(page: Page, places: Iterable[str]) -> list[str]:
    """Addresses after `#` of a page that are wider than the screen with all folds open."""
    wide = []
    for place in places:
        page.read(f"location.hash = {json.dumps(place)}")
        page.read(OPEN)
        if excess_width(page) > 1:
            wide.append(place)
    return wide


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 390])
def test_no_page_of_a_report_is_too_wide(browser, mini, width):
    heads = ["L0H0", *mini.heads.drop_duplicates("primary").index]
    types = dict.fromkeys(mini.evidence["type"])
    places = ["", "scatter", "about", *(f"type={name}" for name in types), *heads]
    assert too_wide(browser.open(report_html(mini), width=width), places) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_a_gallery_is_not_too_wide(browser, mini, tmp_path, width):
    index = hs.gallery(mini, hs.load("atlas:minilm"), out=tmp_path / "site", light=True)
    page = browser.open(index.read_text(encoding="utf-8"), width=width)
    assert too_wide(page, [""]) == []
