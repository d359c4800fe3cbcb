"""The live page in a real browser, which nobody but its own server answers."""

from __future__ import annotations

import json

import pytest

from headscope.serve.server import serve_app
from tests.browser import axe_faults, opened_at
from tests.helpers.cut import cut_on
from tests.serve.served import Served

TEXT = "the old keys were in the house & <b>she</b> told 100% of them"


@pytest.fixture(scope="module")
def page(live, start) -> Served:
    return start(serve_app(live))


@pytest.fixture(scope="module")
def with_run(live_with_run, start) -> Served:
    return start(serve_app(live_with_run))


READ = """
  await type(%s);
  const cell = $('[data-head="L1H2"]'); cell.click();
  await settled(() => $("#head h2")?.textContent.startsWith("L1H2"));
  const canvas = $("canvas.whole-pattern"), box = canvas.getBoundingClientRect();
  const pin = (y) => canvas.dispatchEvent(new MouseEvent("click", { clientX: box.left + 200, clientY: box.top + y, bubbles: true }));
  pin(box.height - 2);
  const last = $("#head .said").textContent;
  $("#silence-head").click();
  await settled(() => $("#change").textContent.includes("→"));
  return { said: $("#status").textContent, last, change: $("#change").textContent, words: $$(".word").map((w) => w.textContent), bold: $$(".words b, .said b").length,
    tables: $$(".likeliest").map((t) => t.rows.length), hash: location.hash, wide: document.documentElement.scrollWidth <= innerWidth };
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut(with_run, width):
    long = "Although the engineers who built it had never seen such a bridge, they trusted it. " * 3
    keys = opened_at(with_run.address, width=width)
    keys.read(f"document.querySelector('#text').value = {json.dumps(long)}")
    keys.read("document.querySelector('#go').click()")
    keys.wait_for("document.querySelector('#status').textContent.includes('read in')")
    keys.read("document.querySelector('[data-head=\"L1H2\"]').click()")
    keys.wait_for("Boolean(document.querySelector('#silence-head'))")
    keys.read("document.querySelector('#silence-head').click()")
    keys.wait_for("(document.querySelector('#change')?.textContent || '').includes('→')")
    assert cut_on(keys, [keys.read("location.hash.slice(1)")]) == {}


@pytest.mark.parametrize("width", [1280, 390])
def test_a_sentence_a_head_and_its_silence(page, width):
    seen = page.drive(READ % json.dumps(TEXT), width=width)
    assert seen.errors == []
    assert all(name.startswith(page.address) for name in seen.requests)
    found = seen.found
    told = page.post("/read", {"text": TEXT})[1]
    assert found["words"] == told["tokens"]
    assert found["bold"] == 0
    matrix = page.post("/head", {"text": TEXT, "head": "L1H2"})[1]["matrix"]
    assert f"{max(matrix[-1]):.2f}" in found["last"]
    assert "pinned" in found["last"]
    without = page.post("/silence", {"text": TEXT, "heads": ["L1H2"]})[1]
    assert f"Loss {told['loss']:.2f} → {without['loss']:.2f}" in found["change"]
    assert found["tables"] == [5, 5]
    assert found["wide"]
    # the address holds all of it: another browser shows the same
    again = page.drive(
        """
        await settled(() => $("#change")?.textContent.includes("→") && $("#head h2"));
        return { text: $("#text").value, head: $("#head h2").textContent, last: $("#head .said").textContent, change: $("#change").textContent };
        """, at=found["hash"].removeprefix("#"), width=width,
    )  # fmt: skip
    assert again.errors == []
    assert again.found["text"] == TEXT
    assert again.found["head"].startswith("L1H2")
    assert (again.found["last"], again.found["change"]) == (found["last"], found["change"])


def test_heads_are_found_by_what_they_do_and_silenced_by_type(with_run):
    seen = with_run.drive(
        """
        const find = (text) => { $("#find").value = text; $("#find").dispatchEvent(new Event("input")); return { said: $("#found").textContent, faded: $$(".cell.faded").length }; };
        const before = find("previous token"), copies = find("induction"), nothing = find("zebra");
        find("");
        $('input[value="induction"]').click();
        await settled(() => $("#change").textContent.includes("→"));
        return { before, copies, nothing, none: $$(".cell.faded").length, change: $("#change").textContent, chips: $$(".cell .letter").map((l) => l.textContent).join(""), hash: location.hash };
        """
    )  # fmt: skip
    assert seen.errors == []
    found = seen.found
    assert "L1H2" in found["before"]["said"]
    assert found["before"]["faded"] == 7
    assert found["copies"]["said"].startswith("1 head: L0H1")
    assert found["nothing"] == {"said": "No head is tagged for that.", "faded": 8}
    assert found["none"] == 0
    assert found["change"].endswith("without L0H1.")
    assert found["chips"] == "IP"
    assert "silence=induction" in found["hash"]


def test_what_is_wrong_is_said_on_the_page_and_it_goes_on(page):
    seen = page.drive(
        """
        const said = [];
        for (const text of ["", "x".repeat(400), "the keys"]) { await type(text); said.push([$("#status").textContent, $("#status").classList.contains("wrong")]); $("#status").textContent = ""; $("#status").classList.remove("wrong"); }
        window.fetch = () => Promise.reject(new TypeError("gone"));
        await type("the house");
        said.push([$("#status").textContent, $("#status").classList.contains("wrong")]);
        return said;
        """
    )  # fmt: skip
    assert seen.errors == []
    empty, long, right, gone = seen.found
    assert empty == ["the text is empty: type a sentence", True]
    assert long[1]
    assert "256 at most" in long[0]
    assert "read in" in right[0]
    assert not right[1]
    assert gone == ["The server does not answer any more; start headscope serve again.", True]


@pytest.mark.parametrize(
    ("at", "scheme"),
    [
        ("silence=induction&find=previous", "light"),
        ("head=L1H2&silence=L1H2", "light"),
        ("head=L1H2&silence=L1H2", "dark"),
    ],
)
def test_axe_finds_no_fault_and_a_silenced_head_is_crossed_out(with_run, at, scheme):
    keys = opened_at(f"{with_run.address}/#{at}", scheme=scheme)
    keys.wait_for("Boolean(document.querySelector('#change')?.textContent.includes('→'))")
    keys.wait_for("Boolean(document.querySelector('#head h2'))")
    assert axe_faults(keys) == {}
    silent = keys.read("[...document.querySelectorAll('.silent')].map((c) => c.dataset.head)")
    assert silent == ["L1H2" if "L1H2" in at else "L0H1"]


def test_a_model_without_a_run_says_how_to_get_tags(page):
    seen = page.drive('return $("main .lead").textContent;')
    assert "headscope classify" in seen.found


SAVE = """
  await type("the old keys were in the house");
  $('[data-head="L1H2"]').click();
  await settled(() => $("#head h2")?.textContent.startsWith("L1H2"));
  const taken = {}, made = [];
  URL.createObjectURL = (blob) => { made.push(blob); return "blob:made"; };
  HTMLAnchorElement.prototype.click = function click() { taken[this.download] = made.pop(); };
  for (const button of $$("button.save")) { const before = Object.keys(taken).length; button.click(); await settled(() => Object.keys(taken).length > before); }
  const svgs = {};
  for (const [name, blob] of Object.entries(taken)) if (name.endsWith("svg")) svgs[name] = await blob.text();
  return { svgs, sizes: Object.fromEntries(Object.entries(taken).map(([name, blob]) => [name, blob.size])) };
"""


def test_pictures_of_the_live_page_are_saved_under_its_policy(page):
    seen = page.drive(SAVE)
    assert seen.errors == []
    svgs = seen.found["svgs"]
    assert len(svgs) == 2
    assert len(seen.found["sizes"]) == 4
    assert min(seen.found["sizes"].values()) > 300
    (grid,) = [text for name, text in svgs.items() if "heads-on-a-sentence" in name]
    (pattern,) = [text for name, text in svgs.items() if name.startswith("L1H2")]
    assert grid.count("<image") == 8
    assert pattern.count("<image") == 1
    assert {f">L{layer}<" in grid for layer in range(2)} == {True}
