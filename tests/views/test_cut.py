"""No table, map or label is cut on any page, on a telephone's screen or a desk's, in a browser."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import headscope as hs
from headscope.views.report import report_html
from tests.browser import opened
from tests.helpers.cut import cut_on

WIDTHS = [1280, 390]


@pytest.fixture(scope="module")
def mini() -> hs.Run:
    """A run with tables of all types and long names of relations."""
    return hs.load("atlas:mini")


@pytest.fixture
def cut(tmp_path):
    def cut(page: str, width: int, places: Sequence[str] = ("",)) -> dict[str, list[str]]:
        keys = opened(page, tmp_path, width=width)
        assert keys.read("innerWidth") == width
        return cut_on(keys, places)

    return cut


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_on_any_page_of_a_report(mini, cut, width):
    heads = mini.heads.drop_duplicates("primary").index
    types = dict.fromkeys(mini.evidence["type"])
    places = ["", "scatter", "about", *(f"type={name}" for name in types), *heads]
    assert cut(report_html(mini), width, places) == {}


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_on_a_gallery(mini, cut, tmp_path, width):
    index = hs.gallery(mini, hs.load("atlas:minilm"), out=tmp_path / "site", light=True)
    assert cut(index.read_text(encoding="utf-8"), width) == {}
