"""Data of the report's page: packed, harmless to HTML, and the same numbers as the tables."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path

import numpy as np

import headscope as hs
from headscope.statistics.columns import EXPLAINED_COLUMNS
from headscope.views import report
from headscope.views.report import circuitsvis_script, packed
from headscope.views.report.data import pack_picture, page_data


def test_the_circuitsvis_script_goes_in_packed_and_cannot_end_its_element(page):
    script = circuitsvis_script()
    assert "</script" not in script
    small = packed(script)
    assert page.count(small) == 1
    assert zlib.decompress(base64.b64decode(small)).decode() == script


def test_packed_patterns_hold_the_lower_triangle_row_by_row():
    pattern = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.2, 0.6]], np.float16)
    assert list(base64.b64decode(pack_picture(pattern))) == [255, 128, 128, 51, 51, 153]


def test_every_number_of_the_page_is_one_of_the_tables(run):
    data = page_data(run)
    assert len(data["rows"]) == len(run.heads)
    for relation in data["relations"]:
        own = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == relation["id"]]
        for column in ("mass", "control", "lift", "hit_rate"):
            expected = own.sort_values(["layer", "head"])[column]
            shown = np.array([np.nan if v is None else v for v in relation[column]])
            np.testing.assert_allclose(shown, expected, rtol=1e-3, atol=1e-12)


def test_the_scripts_read_only_what_the_data_hold():
    data = page_data(hs.load("atlas:mini"))
    # what `explain` adds to heads
    keys = {*data, *data["relations"][0], *data["rows"][0], *EXPLAINED_COLUMNS}
    scripts = "".join(path.read_text() for path in Path(report.__file__).parent.glob("*.js"))
    read = set(re.findall(r"\b(?:r|relation|row|DATA)\.([a-z_]+)\b(?!\()", scripts))
    assert len(read) > 30
    assert read <= keys
