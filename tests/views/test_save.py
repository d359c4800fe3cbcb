"""Every picture of the report is saved as SVG and PNG, drawn by the page alone."""

from __future__ import annotations

import base64
import io
from xml.etree import ElementTree

import pytest
from PIL import Image

import headscope as hs

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = ("svg", "g", "rect", "text", "image", "path")
# a file goes to the disk by a click on a link; its content is what the page made of it
TAKE = """
  const taken = {}, made = [];
  URL.createObjectURL = (blob) => { made.push(blob); return "blob:made"; };
  let count = 0;
  HTMLAnchorElement.prototype.click = function click() {
    if (!this.download) return;
    taken[this.download] = made.pop();
    count += 1;
  };
  const save = async () => {
    for (const button of $$("button.save")) {
      const before = count;
      button.click();
      await settled(() => count > before);
    }
  };
  const bytes = async (blob) => {
    const numbers = [...new Uint8Array(await blob.arrayBuffer())];
    return btoa(numbers.map((number) => String.fromCharCode(number)).join(""));
  };
"""
REPORT = """
  await go(""); await tick(300); await save();
  await go("scatter"); await save();
  await go("type=induction"); await save();
  await go("L5H3"); await tick(300);
  $(".whole").open = true;
  $(".all-queries").open = true;
  await tick(300);
  await save();
  const read = {};
  for (const [name, blob] of Object.entries(taken)) read[name] = [blob.type, await bytes(blob)];
  return read;
"""


@pytest.fixture(scope="module")
def saved(browser):
    page = hs.load("atlas:mini").report(light=True)
    seen = browser.visit(page, TAKE + REPORT)
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
  const pictures = Object.entries(taken).filter(([name]) => name.endsWith("svg"));
  return Promise.all(pictures.map(([, file]) => file.text()));
"""


def test_tokens_of_any_kind_make_sound_files(browser, page):
    """Quotes, tags and control characters of a text stay text in the file."""
    seen = browser.visit(page, TAKE + EVIL)
    assert seen.errors == []
    words = ""
    for text in seen.found:
        root = ElementTree.fromstring(text)
        assert {node.tag for node in root.iter()} <= {f"{SVG}{tag}" for tag in DRAWN}
        words += "".join(node.text or "" for node in root.iter(f"{SVG}text"))
    assert "</script>" in words  # what looks like a tag is text
