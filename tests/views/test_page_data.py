"""What the report's page is told: packed, harmless to HTML, and the same numbers as the tables."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest

from headscope.errors import RunError
from headscope.views.report import circuitsvis_script, packed
from headscope.views.report.data import page_data, to_json
from headscope.views.report.mean_pictures import pack_picture
from tests.browser import visit


def test_the_circuitsvis_script_goes_in_packed_and_cannot_end_its_element(page):
    script = circuitsvis_script()
    assert "</script" not in script
    small = packed(script)
    assert page.count(small.replace("+", "&#43;")) + page.count(small) == 1
    size, _, text = small.partition(":")
    raw = zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS)
    assert (len(raw), raw.decode()) == (int(size), script)


@pytest.mark.parametrize("strategy", [zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED, "stored"])
def test_the_page_unpacks_what_was_deflated_in_any_way(page, tmp_path, strategy):
    rng = np.random.default_rng(0)
    texts = ["", "a", "headscope " * 3000, "".join(map(chr, rng.integers(32, 0x2000, 20_000)))]
    given = []
    for text in texts:
        raw = text.encode()
        level, how = (0, 0) if strategy == "stored" else (9, strategy)
        deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, 9, how)
        small = deflate.compress(raw) + deflate.flush()
        given.append(f"{len(raw)}:{base64.b64encode(small).decode()}")
    script = f"return {json.dumps(given)}.map(textOf);"
    assert visit(page, script, tmp_path).found == texts


def test_json_in_the_page_has_nothing_that_html_could_read():
    text = to_json({"a": ["</script>", "<!--", "é\u2028", "\ud83d"]})
    assert not set("<>&") & set(text)
    assert text.isascii()


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


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_out_of_range_is_refused_in_words(number):
    with pytest.raises(RunError, match="cannot be shown"):
        to_json({"floor": number})
