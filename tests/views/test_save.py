"""Every picture of the report is saved as SVG and PNG, drawn by the page alone."""

from __future__ import annotations

import base64
import io
from xml.etree import ElementTree

import pytest
from PIL import Image

import headscope as hs
from tests.browser import visit

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = ("svg", "g", "rect", "text", "image", "path")
# a file goes to the disk by a click on a link; its content is what the page made of it
TAKE = """
  const taken = {}, made = [];
  URL.createObjectURL = (blob) => { made.push(blob); return "blob:made"; };
  HTMLAnchorElement.prototype.click = function click() { if (this.download) taken[this.download] = made.pop(); };
  const save = async () => {
    for (const button of $$("button.save")) { const before = Object.keys(taken).length; button.click(); for (let i = 0; i < 100 && Object.keys(taken).length === before; i++) await tick(20); }
  };
  const bytes = async (blob) => btoa([...new Uint8Array(await blob.arrayBuffer())].map((b) => String.fromCharCode(b)).join(""));
"""
REPORT = """
  await go(""); await tick(300); await save();
  await go("scatter"); await save();
  await go("type=induction"); await save();
  await go("L5H3"); await tick(300); $(".whole").open = true; $(".all-queries").open = true; await tick(300); await save();
  const files = {};
  for (const [name, blob] of Object.entries(taken)) files[name] = [blob.type, await bytes(blob)];
  return files;
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    page = hs.load("atlas:mini").report(light=True)
    seen = visit(page, TAKE + REPORT, tmp_path_factory.mktemp("saved"))
    assert seen.errors == []
    assert seen.requests == []
    return {name: (kind, base64.b64decode(text)) for name, (kind, text) in seen.found.items()}


def test_every_picture_has_both_files(saved):
    names = {name.rpartition(".")[0] for name in saved}
    assert {"mini-atlas", "mini-scatter", "mini-lifts-of-all-heads"} <= names
    assert {"L5H3-mean-attention", "mini-histogram-induction"} <= names
    assert len([name for name in names if name.endswith("-pattern")]) >= 1
    assert set(saved) == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}


def test_a_png_is_the_svg_at_twice_its_size(saved):
    for name in [name for name in saved if name.endswith(".svg")]:
        root = ElementTree.fromstring(saved[name][1])
        kind, content = saved[name.replace(".svg", ".png")]
        picture = Image.open(io.BytesIO(content))
        assert kind == "image/png"
        assert picture.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
        colours = picture.convert("RGB").getcolors(picture.width * picture.height)
        assert len(colours) > 3, name  # something is drawn


EVIL = """
  await go("L1H2"); await tick(300);
  await save();
  return Promise.all(Object.entries(taken).filter(([name]) => name.endsWith("svg")).map(([, file]) => file.text()));
"""


def test_tokens_of_any_kind_make_sound_files(page, tmp_path):
    """Quotes, tags and control characters of a text stay text in the file."""
    seen = visit(page, TAKE + EVIL, tmp_path)
    assert seen.errors == []
    words = ""
    for text in seen.found:
        root = ElementTree.fromstring(text)
        assert {node.tag for node in root.iter()} <= {f"{SVG}{tag}" for tag in DRAWN}
        words += "".join(node.text or "" for node in root.iter(f"{SVG}text"))
    assert "</script>" in words  # what looks like a tag is text
