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
    """A run with all types' tables, long names of relations, and heads of several types."""
    return hs.classify("mini", "gum", max_tokens=3000, twin=False)


@pytest.fixture(scope="module")
def wide() -> hs.Run:
    """A run of another text, with other types that can be told and others that cannot."""
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
def test_nothing_is_cut_on_a_gallery(mini, wide, cut, tmp_path, width):
    index = hs.gallery(mini, wide, out=tmp_path / "site", light=True)
    assert cut(index.read_text(encoding="utf-8"), width) == {}


FAULTY = {
    "a table 2000 wide in a box": '<div style="overflow-x:auto" tabindex="0"><table style="width:2000px"><tr><td>a</td></tr></table></div>',
    "cut 1700 pixels short": '<div style="overflow:hidden;width:300px"><p style="width:2000px">a</p></div>',
    "cut 80 pixels low": '<div style="overflow:hidden;height:20px"><p style="height:100px;margin:0">a</p></div>',
    "past the screen's edge": '<p style="position:absolute;left:-50px">a</p>',
    "the page is 3008 wide": '<p style="width:3000px">a</p>',
    "label cut by its picture": '<svg width="100" height="40"><text x="80" y="20">a long label</text></svg>',
    "scrolls, which nothing shows": '<div style="overflow-x:auto;scrollbar-width:none;width:200px"><p style="width:500px">a</p></div>',
    "beside free space": '<div style="overflow-x:auto;width:384px" tabindex="0"><table class="grid" style="width:443px"><tr><td>a</td></tr></table></div>',
    "whose cells could be smaller": '<div style="overflow-x:auto" tabindex="0"><table class="grid" style="width:4000px"><tr><td><i class="cell" style="display:block;width:90px">a</i></td></tr></table></div>',
    "words leave their box": '<p style="width:30px;white-space:nowrap">words that go on</p>',
}  # fmt: skip


@pytest.mark.parametrize("said", FAULTY)
def test_what_is_cut_on_a_page_is_said(cut, said):
    page = "<html><head></head><body><main>{}<p>whole</p></main></body></html>"
    faults = cut(page.format(FAULTY[said]), 1280)
    assert any(said in line for line in faults[""]), faults
    assert not any(
        "whole”" in line and "main" not in line for line in faults[""] if "page is" not in line
    )
    assert cut(page.format(""), 1280) == {}


def test_a_table_that_a_style_cuts_is_seen_in_a_report(mini, cut):
    page = report_html(mini).replace(
        "</style>", ".scroll > table { min-width: 1500px !important; }</style>", 1
    )
    faults = cut(page, 1280, ["type=positional"])
    assert any("a table 1500 wide" in line for line in faults["type=positional"])
