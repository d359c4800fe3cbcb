"""No table, map or label is cut on any page, on a telephone's screen or a desk's, in a browser."""

from __future__ import annotations

import pytest

import headscope as hs
from headscope.views.report import report_html
from tests.browser import opened
from tests.helpers.cut import cut_on


@pytest.fixture(scope="module")
def mini() -> hs.Run:
    """A run with tables of all types and long names of relations."""
    return hs.load("atlas:mini")


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_on_any_page_of_a_report(mini, tmp_path, width):
    heads = mini.heads.drop_duplicates("primary").index
    types = dict.fromkeys(mini.evidence["type"])
    places = ["", "scatter", "about", *(f"type={name}" for name in types), *heads]
    assert cut_on(opened(report_html(mini), tmp_path, width=width), places) == {}


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_on_a_gallery(mini, tmp_path, width):
    index = hs.gallery(mini, hs.load("atlas:minilm"), out=tmp_path / "site", light=True)
    page = opened(index.read_text(encoding="utf-8"), tmp_path, width=width)
    assert cut_on(page, [""]) == {}
