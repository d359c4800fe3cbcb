"""The widget for notebooks: its module in a real browser, and its values in Python."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from headscope.errors import HeadscopeError
from headscope.printing import visible
from headscope.serve.answers import head_answer, sentence_answer
from headscope.serve.live_page import live_data, widget_module
from headscope.views.show import LEAST

TEXT = "the old keys & <b>she</b> told"
# what a notebook gives a widget: values, a way to change them, and news of changes
NOTEBOOK = """
  const values = %s, listeners = {}, saved = [];
  const model = {
    get: (name) => values[name],
    set: (name, value) => {
      if (values[name] === value) return;
      values[name] = value;
      for (const tell of listeners[`change:${name}`] || []) tell();
    },
    save_changes: () => saved.push({ head: values.head, type: values.type, token: values.token }),
    on: (name, tell) => (listeners[name] ||= []).push(tell),
    off: (name, tell) => { listeners[name] = listeners[name].filter((own) => own !== tell); },
  };
  const home = document.getElementById("cell");
  const module = await import(URL.createObjectURL(new Blob([%s], { type: "text/javascript" })));
  const clear = module.default.render({ model, el: home });
  const tree = home.firstElementChild.shadowRoot;
  const one = (q) => tree.querySelector(q);
  const all = (q) => [...tree.querySelectorAll(q)];
  const pressedHeads = () => all('[aria-pressed="true"]').map((cell) => cell.dataset.head);
  await tick(200);
"""


def state(live, head: str) -> dict:
    tokens = live.read(TEXT).tokens
    return {
        "_data": live_data(live),
        "head": head,
        "type": "",
        "token": len(tokens) - 1,
        "_reading": sentence_answer(live, TEXT),
        "_pattern": head_answer(live, TEXT, head),
    }


def in_notebook(browser, live, script: str):
    start = NOTEBOOK % (json.dumps(state(live, "L0H1")), json.dumps(widget_module()))
    # the notebook's own sheet and elements are not the widget's
    body = '<h2>Notebook</h2><div id="cell"></div>'
    page = f"<!doctype html><html><head></head><body>{body}</body></html>"
    seen = browser.visit(page, start.replace("</script", "<\\/script") + script)
    assert seen.errors == []
    assert [name for name in seen.requests if not name.startswith("blob:")] == []
    return seen.found


CHOOSE = """
  const first = [one("h2").textContent, one(".message").textContent, all("canvas.thumb").length];
  one('[data-head="L1H2"]').click();
  const pressed = pressedHeads();
  model.set("_pattern", PATTERN);
  const canvas = one("canvas.whole-pattern"), box = canvas.getBoundingClientRect();
  const above = box.bottom - 2 - 2 * box.height / 12;
  const at = { clientX: box.left + 9, clientY: above, bubbles: true };
  canvas.dispatchEvent(new MouseEvent("click", at));
  canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true }));
  const second = one("h2").textContent;
  const chooser = one("select");
  chooser.value = "induction"; chooser.dispatchEvent(new Event("change"));
  const faded = all(".cell.faded").length;
  model.set("token", 1);
  const told = one(".message").textContent, bold = all("article b").length;
  model.set("type", "");
  const unfaded = all(".cell.faded").length;
  clear(); model.set("head", "L0H0");
  const after = pressedHeads();
  return { first, pressed, second, saved, faded, unfaded, told, bold, after };
"""


def test_what_is_clicked_is_chosen_and_what_python_chooses_is_drawn(browser, live_with_run):
    pattern = head_answer(live_with_run, TEXT, "L1H2")
    script = CHOOSE.replace("PATTERN", json.dumps(pattern))
    found = in_notebook(browser, live_with_run, script)
    tokens = live_with_run.read(TEXT).tokens
    last = len(tokens) - 1
    assert found["first"][0].startswith("L0H1 induction")
    assert found["first"][1].endswith("pinned")
    assert found["first"][2] == 8
    assert found["pressed"] == ["L1H2"]
    assert found["second"].startswith("L1H2 positional")
    head, click, key, kind = found["saved"]
    assert head == {"head": "L1H2", "type": "", "token": last}
    assert click["token"] < last
    assert key["token"] == click["token"] - 1
    assert kind == {"head": "L1H2", "type": "induction", "token": key["token"]}
    assert (found["faded"], found["unfaded"]) == (7, 0)
    assert "(token 1) attends to" in found["told"]
    assert found["bold"] == 0
    assert found["after"] == ["L1H2"]


@pytest.fixture
def chosen(live_with_run):
    from headscope.serve.head_widget import HeadWidget

    return HeadWidget(live_with_run, "0.1", TEXT)


def test_python_sees_the_choice_and_the_widget_what_python_sets(chosen, live_with_run):
    changes = []
    chosen.observe(
        lambda change: changes.append((change["name"], change["new"])), ["head", "token"]
    )
    # as the notebook's page sends them
    chosen.set_state({"head": "L1H2", "token": 3, "type": "positional"})
    assert dict(changes) == {"head": "L1H2", "token": 3}
    matrix = chosen.get_state()["_pattern"]["matrix"]
    assert matrix == head_answer(live_with_run, TEXT, "L1H2")["matrix"]
    assert chosen.type == "positional"
    chosen.text = "she"
    assert chosen.token == len(chosen.tokens) - 1 < 3
    assert len(chosen.get_state()["_pattern"]["matrix"]) == len(chosen.tokens)
    assert chosen.get_state()["_reading"]["tokens"] == list(chosen.tokens)
    # every value that the module reads is one that Python sends
    read = set(re.findall(r'traits\.get\("(\w+)"\)', widget_module()))
    assert read <= set(chosen.get_state())
    assert "_reading" in read


def test_a_saved_widget_is_a_picture_of_the_selected_head(chosen, live_with_run):
    chosen.head = "L1H2"
    data, _ = chosen._repr_mimebundle_()
    assert "L1H2" in data["text/plain"]
    picture = ElementTree.fromstring(data["image/svg+xml"])
    texts = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[0].endswith("L1H2")
    # each token twice: as a query, and as a key
    assert sorted(texts[1:]) == sorted(2 * [visible(token) for token in chosen.tokens])
    shown = {
        (int(cell.get("y")), int(cell.get("x"))): float(cell.get("fill-opacity"))
        for cell in picture.findall("{*}g/{*}rect")
    }
    pattern = np.array(head_answer(live_with_run, TEXT, "L1H2")["matrix"])
    assert set(shown) == set(zip(*np.nonzero(pattern >= LEAST), strict=True))
    assert all(abs(pattern[at] - share) <= 0.006 for at, share in shown.items())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("head", "L9H9", "L9H9"),
        ("type", "lexical", "induction, positional"),
        ("text", "", "empty"),
        ("text", "\ud83d", "character"),
    ],
)
def test_what_cannot_be_chosen_is_said_and_changes_nothing(chosen, name, value, said):
    before = chosen.get_state()
    with pytest.raises(HeadscopeError, match=re.escape(said)):
        setattr(chosen, name, value)
    assert chosen.get_state() == before
