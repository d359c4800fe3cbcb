"""No page is wider than its screen, a telephone's or a desk's, in a browser."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import headscope as hs
from headscope.views.report import report_html
from tests.browser import Page
from tests.helpers.layout import with_every_tag

WIDE = """
  const wide = [];
  for (const place of places) {
    await go(place);
    for (const folded of $$("details")) folded.open = true;
    const element = document.documentElement;
    if (element.scrollWidth - element.clientWidth > 1) wide.push(place);
  }
  return wide;
"""


@pytest.fixture(scope="module")
def mini() -> hs.Run:
    """A run with tables of all types and long names of relations; L0H0 has every tag."""
    return with_every_tag(hs.load("atlas:mini"))


def too_wide(page: Page, places: Iterable[str]) -> list[str]:
    """Addresses after `#` of a page that are wider than the screen with all folds open."""
    found: list[str] = page.run(WIDE, {"places": list(places)}).found
    return found


@pytest.mark.parametrize("width", [pytest.param(1280, marks=pytest.mark.slow), 390])
def test_no_page_of_a_report_is_too_wide(browser, mini, width):
    heads = ["L0H0", *mini.heads.drop_duplicates("primary").index]
    types = dict.fromkeys(mini.evidence["type"])
    places = ["", "scatter", "about", *(f"type={name}" for name in types), *heads]
    assert too_wide(browser.open(report_html(mini), width=width), places) == []


def test_a_gallery_is_not_too_wide(browser, mini, tmp_path):
    index = hs.gallery(mini, hs.load("atlas:minilm"), out=tmp_path / "site", light=True)
    html = index.read_text(encoding="utf-8")
    for width in (1280, 390):
        assert too_wide(browser.open(html, width=width), [""]) == []
