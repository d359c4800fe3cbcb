"""Heads on a text: one large, several as small pictures that open on click."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.models.text_window import text_window
from headscope.views.heads_view import HeadsView
from tests.helpers import encoders

TEXT = "The old keys were in the house </script> and she told them that."
MB = 1_000_000


def unpacked(view: HeadsView) -> dict[str, np.ndarray]:
    """The patterns in a view's page, by the names of the heads."""
    data = json.loads(re.search(r"\}\)\(document.*?, (\{.*\})\);", view.html())[1])
    size = len(data["tokens"])
    cells = np.ones((size, size), bool) if data["whole"] else np.tri(size, dtype=bool)
    patterns = {}
    for head in data["heads"]:
        pattern = np.zeros((size, size))
        pattern[cells] = np.frombuffer(base64.b64decode(head["levels"]), np.uint8) / 255
        patterns[head["name"]] = pattern
    return patterns


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("L1", ["L1H0", "L1H1", "L1H2", "L1H3"]),
        ("all", [f"L{layer}H{head}" for layer in range(2) for head in range(4)]),
        (["L1H3", "0.2", "L1H3"], ["L1H3", "L0H2"]),
        ("L1H2,L0", ["L1H2", "L0H0", "L0H1", "L0H2", "L0H3"]),
    ],
)
def test_the_page_of_several_heads_holds_the_patterns_of_transformers(names, expected, gpt2_folder):
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager")
    window = text_window(hs.load_model(gpt2_folder), TEXT)
    with torch.no_grad():
        ids = torch.tensor(window.tokens)[None]
        layers = network.eval()(ids, output_attentions=True).attentions
    view = hs.show(gpt2_folder, names, TEXT)
    assert view.names == expected
    for name, pattern in unpacked(view).items():
        layer, head = map(int, name[1:].split("H"))
        assert np.allclose(pattern, layers[layer][0, head], atol=0.5 / 255 + 1e-4)
    again = hs.show(hs.patterns(gpt2_folder, TEXT), names)
    assert again.names == expected
    assert np.allclose(again.patterns, view.patterns, atol=1e-3)


def test_an_encoders_page_holds_the_keys_after_a_query(tmp_path):
    folder = encoders.save_hand_built(tmp_path / "encoder")
    view = hs.show(folder, "all", "n1 so v1")
    assert np.triu(view.patterns, 1).any()
    for name, pattern in unpacked(view).items():
        assert np.allclose(pattern, view.patterns[view.names.index(name)], atol=0.5 / 255 + 1e-4)


def test_a_page_of_270_heads_on_40_tokens_is_small():
    rows = np.random.default_rng(0).dirichlet(np.ones(40), (270, 40)).astype(np.float32)
    heads = tuple((number // 9, number % 9) for number in range(270))
    view = HeadsView("random", tuple(f"word{number}" for number in range(40)), heads, rows)
    assert len(view.html()) < 3 * MB


def test_a_click_opens_a_head_without_any_request(browser, gpt2_folder):
    view = hs.show(gpt2_folder, "all", TEXT)
    query, key = 5, 2
    script = f"""
        const open = () => $$("canvas[role=img]").map((c) => c.getAttribute("aria-label"));
        const before = open();
        $("[data-head=L1H2]").click();
        const canvas = $("canvas[role=img]"), box = canvas.getBoundingClientRect();
        const unit = (box.width - 96) / {len(view.tokens)};
        const at = {{
          clientX: box.left + 96 + {key + 0.5} * unit,
          clientY: box.top + 96 + {query + 0.5} * unit,
        }};
        canvas.dispatchEvent(new MouseEvent("mousemove", at));
        const message = $("p[style*=min-height]").textContent;
        return [$$("[data-head]").length, before, open(), message];
    """
    visited = browser.visit(view.html(), script)
    assert (visited.errors, visited.requests) == ([], [])
    count, before, after, message = visited.found
    assert (count, before, len(after)) == (8, [], 1)
    assert after[0].startswith("L1H2")
    assert f"{view.patterns[view.names.index('L1H2'), query, key]:.2f}" in message


def test_the_command_writes_several_heads_to_a_file(gpt2_folder, tmp_path, command):
    for name in ("heads.html", "heads.png"):
        assert command("show", gpt2_folder, "L1,L0H2", TEXT, "--out", tmp_path / name)[0] == 0
        assert (tmp_path / name).stat().st_size > 1000
    code, out, error = command("show", gpt2_folder, "all", TEXT)
    assert (code, out) == (2, "")
    assert "--out" in error


@pytest.mark.parametrize(
    ("names", "word"), [("L7", "L7H0"), ("L1H9", "L1H9"), ("every", "every"), ("L1H1,", None)]
)
def test_a_head_that_is_not_there_is_named(names, word, gpt2_folder):
    if word is None:
        assert hs.show(gpt2_folder, names, TEXT).title.endswith("L1H1")
        return
    for source in (gpt2_folder, hs.patterns(gpt2_folder, TEXT)):
        with pytest.raises(HeadscopeError, match=word):
            hs.show(source, names, *([TEXT] if source is gpt2_folder else []))
