"""The live page in a real browser, which nobody but its own server answers."""

from __future__ import annotations

import json

import pytest

import headscope as hs
from headscope.serve.live import Live
from headscope.serve.server import serve_app
from tests.helpers.layout import excess_width, with_every_tag
from tests.serve.served import TOKEN, Served

TEXT = "the old keys were in the house & <b>she</b> told 100% of them"


@pytest.fixture(scope="module")
def page(live, start) -> Served:
    return start(serve_app(live, TOKEN))


@pytest.fixture(scope="module")
def with_run(live_with_run, start) -> Served:
    return start(serve_app(live_with_run, TOKEN))


READ = """
  await type(%s);
  const cell = $('[data-head="L1H2"]'); cell.click();
  await settled(() => $("#head h2")?.textContent.startsWith("L1H2"));
  const canvas = $("canvas.whole-pattern"), box = canvas.getBoundingClientRect();
  const at = { clientX: box.left + 200, clientY: box.top + box.height - 2, bubbles: true };
  canvas.dispatchEvent(new MouseEvent("click", at));
  const last = $("#head .message").textContent;
  $("#ablate-head").click();
  await settled(() => $("#change").textContent.includes("→"));
  return {
    last,
    change: $("#change").textContent,
    words: $$(".word").map((word) => word.textContent),
    bold: $$(".words b, .message b").length,
    hash: location.hash,
  };
"""


def test_a_sentence_a_head_and_its_ablation(browser, page):
    seen = page.drive(browser, READ % json.dumps(TEXT))
    assert seen.errors == []
    assert all(name.startswith(page.address) for name in seen.requests)
    found = seen.found
    told = page.post("/read", {"text": TEXT})[1]
    assert found["words"] == told["tokens"]
    assert found["bold"] == 0
    matrix = page.post("/head", {"text": TEXT, "head": "L1H2"})[1]["matrix"]
    assert f"{max(matrix[-1]):.2f}" in found["last"]
    assert "pinned" in found["last"]
    without = page.post("/ablate", {"text": TEXT, "heads": ["L1H2"]})[1]
    assert f"Loss {told['loss']:.2f} → {without['loss']:.2f}" in found["change"]
    # the address holds all of it: another browser shows the same
    again = page.drive(
        browser,
        """
        await settled(() => $("#change")?.textContent.includes("→") && $("#head h2"));
        return {
          text: $("#text").value,
          head: $("#head h2").textContent,
          last: $("#head .message").textContent,
          change: $("#change").textContent,
        };
        """,
        at=found["hash"].removeprefix("#"),
    )
    assert again.errors == []
    assert again.found["text"] == TEXT
    assert again.found["head"].startswith("L1H2")
    assert (again.found["last"], again.found["change"]) == (found["last"], found["change"])


EXPLAIN = """
  await type(%s);
  $('[data-head="L1H2"]').click();
  await settled(() => $("#explain"));
  $("#explain").click();
  await settled(() => $(".terms"));
  const canvas = $("canvas.whole-pattern"), box = canvas.getBoundingClientRect();
  const at = { clientX: box.left + 200, clientY: box.top + box.height - 2, bubbles: true };
  canvas.dispatchEvent(new MouseEvent("mousemove", at));
  return $$(".terms tr").map((row) => [...row.children].map((cell) => cell.textContent));
"""


def test_a_query_under_the_mouse_has_a_table_of_keys_with_their_terms(browser, page, live):
    seen = page.drive(browser, EXPLAIN % json.dumps(TEXT))
    assert seen.errors == []
    body = {"text": TEXT, "head": "L1H2"}
    tokens = page.post("/read", {"text": TEXT})[1]["tokens"]
    attention = page.post("/head", body)[1]["matrix"][-1]
    result = hs.explain_at(live.model, "L1H2", TEXT).table.set_index("key")
    _, *rows = seen.found
    keys = page.post("/explain", body)[1]["queries"][-1]
    assert len(rows) == len(keys) > 1
    for (key, _, _), (token, share_of_head, share, terms) in zip(keys, rows, strict=True):
        assert token == tokens[key].strip()
        assert share_of_head == f"{attention[key]:.2f}"
        assert float(share) == pytest.approx(result.loc[key, "share"], abs=0.006)
        assert terms == (result.loc[key, "terms"] or "no feature")


def test_heads_are_found_by_what_they_do_and_ablated_by_type(browser, with_run):
    seen = with_run.drive(
        browser,
        """
        const find = (text) => {
          $("#find").value = text;
          $("#find").dispatchEvent(new Event("input"));
          return { said: $("#found").textContent, faded: $$(".cell.faded").length };
        };
        const before = find("previous token");
        const copies = find("induction");
        const nothing = find("zebra");
        find("");
        $('input[value="induction"]').click();
        await settled(() => $("#change").textContent.includes("→") && $("#random"));
        return {
          random: $("#random").textContent,
          before,
          copies,
          nothing,
          none: $$(".cell.faded").length,
          change: $("#change").textContent,
          chips: $$(".cell .letter").map((letter) => letter.textContent).join(""),
          hash: location.hash,
        };
        """,
    )
    assert seen.errors == []
    found = seen.found
    assert "L1H2" in found["before"]["said"]
    assert found["before"]["faded"] == 7
    assert found["copies"]["said"].startswith("1 head: L0H1")
    assert found["nothing"] == {"said": "No head has such a tag.", "faded": 8}
    assert found["none"] == 0
    assert found["change"].endswith("with L0H1 ablated.")
    assert found["random"].startswith("20 random sets")
    assert found["chips"] == "IP"
    assert "ablate=induction" in found["hash"]


def test_what_is_wrong_is_said_on_the_page_and_it_goes_on(browser, page):
    seen = page.drive(
        browser,
        """
        const said = [];
        for (const text of ["", "the keys"]) {
          await type(text);
          said.push([status(), isWrong()]);
          $("#status").textContent = "";
          $("#status").classList.remove("wrong");
        }
        window.fetch = () => Promise.reject(new TypeError("gone"));
        await type("the house");
        said.push([status(), isWrong()]);
        return said;
        """,
    )
    assert seen.errors == []
    empty, right, gone = seen.found
    assert empty[1]
    assert "read in" in right[0]
    assert not right[1]
    assert gone[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_and_an_ablated_head_is_crossed_out(browser, with_run, scheme):
    keys = browser.open_at(with_run.page("head=L1H2&ablate=L1H2"), scheme=scheme)
    keys.page.wait_for_selector("#change:has-text('→')")
    keys.page.wait_for_selector("#head h2")
    assert keys.axe_faults() == {}
    silent = keys.read("[...document.querySelectorAll('.silent')].map((c) => c.dataset.head)")
    assert silent == ["L1H2"]


SAVE = """
  await type("the old keys were in the house");
  $('[data-head="L1H2"]').click();
  await settled(() => $("#head h2")?.textContent.startsWith("L1H2"));
  const taken = {}, made = [];
  URL.createObjectURL = (blob) => { made.push(blob); return "blob:made"; };
  HTMLAnchorElement.prototype.click = function click() { taken[this.download] = made.pop(); };
  for (const button of $$("button.save")) {
    const before = Object.keys(taken).length;
    button.click();
    await settled(() => Object.keys(taken).length > before);
  }
  return Object.fromEntries(Object.entries(taken).map(([name, blob]) => [name, blob.size]));
"""


def test_pictures_of_the_live_page_are_saved_under_its_policy(browser, page):
    seen = page.drive(browser, SAVE)
    assert seen.errors == []
    assert len(seen.found) == 4
    assert min(seen.found.values()) > 300


@pytest.mark.parametrize("width", [1280, 390])
def test_a_page_is_not_too_wide_with_many_tags(browser, live_with_run, start, width):
    tagged = Live(live_with_run.model, with_every_tag(live_with_run.run))
    served = start(serve_app(tagged, TOKEN))
    address = served.page("?text=the%20old%20keys&head=L0H0")
    page = browser.open_at(address, width=width)
    page.page.wait_for_selector("#head h2 .chip")
    assert excess_width(page) <= 1
    assert page.read("document.querySelectorAll('#head h2 .chip').length") == 2
