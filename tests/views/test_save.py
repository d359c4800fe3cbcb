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
  await go(""); await tick(300); const words = $$(".grid.pictures th").map((cell) => cell.textContent).filter(Boolean);
  await save();
  await go("scatter"); await save();
  await go("type=induction"); await save();
  await go("L5H3"); await tick(300); $(".whole").open = true; $(".all-queries").open = true; await tick(300); await save();
  const files = {};
  for (const [name, blob] of Object.entries(taken)) files[name] = [blob.type, await bytes(blob)];
  return { files, words, pictures: $$(".atlas canvas").length };
"""


@pytest.fixture(scope="module", params=["light", "dark"])
def saved(request, tmp_path_factory):
    page = hs.load("atlas:mini").report(light=True)
    folder = tmp_path_factory.mktemp(f"saved-{request.param}")
    seen = visit(page, TAKE + REPORT, folder, scheme=request.param)
    assert seen.errors == []
    assert seen.requests == []
    files = {
        name: (kind, base64.b64decode(text)) for name, (kind, text) in seen.found["files"].items()
    }
    return files, seen.found["words"], request.param


def test_every_picture_has_both_files(saved):
    files, _, _ = saved
    names = {name.rpartition(".")[0] for name in files}
    assert {"mini-atlas", "mini-scatter", "mini-lifts-of-all-heads"} <= names
    assert {"L5H3-mean-attention", "mini-histogram-induction"} <= names
    assert len([name for name in names if name.endswith("-pattern")]) >= 1
    assert set(files) == {f"{name}.{kind}" for name in names for kind in ("svg", "png")}


def test_the_atlas_has_its_heads_and_their_names(saved):
    files, words, _ = saved
    kind, content = files["mini-atlas.svg"]
    assert kind == "image/svg+xml"
    root = ElementTree.fromstring(content)
    texts = [node.text for node in root.iter(f"{SVG}text")]
    assert len(words) == 8 + 6
    assert set(words) <= set(texts)
    assert len(list(root.iter(f"{SVG}image"))) == 48
    assert texts.count("I") == 5  # the letters of its induction heads
    assert b"oklab" not in content
    assert b"http" not in content.replace(b"http://www.w3.org/2000/svg", b"")


def test_a_png_is_the_svg_at_twice_its_size(saved):
    files, _, scheme = saved
    for name in [name for name in files if name.endswith(".svg")]:
        root = ElementTree.fromstring(files[name][1])
        kind, content = files[name.replace(".svg", ".png")]
        picture = Image.open(io.BytesIO(content))
        assert kind == "image/png"
        assert picture.size == (2 * int(root.get("width")), 2 * int(root.get("height")))
        colours = picture.convert("RGB").getcolors(picture.width * picture.height)
        assert len(colours) > 3, name  # something is drawn
        brightness = sum(max(colours)[1]) / 3
        if "mean-attention" not in name and "-pattern" not in name:  # whose ground is their own
            assert (brightness > 200) == (scheme == "light"), name


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
