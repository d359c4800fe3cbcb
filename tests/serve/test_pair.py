"""Two models on one page: in a cell the first lies below the diagonal, the second above it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headscope.models.load import load_model
from headscope.serve.live import Live
from headscope.serve.server import serve_app
from tests.browser import axe_faults, opened_at

TEXT = "the old keys were in the house and she told them"
CHANGED = "L1H0"


@pytest.fixture(scope="module")
def folders(gpt2_folder, tmp_path_factory):
    """A model, and the same with other queries in one head."""
    other = tmp_path_factory.mktemp("pair") / "turned"
    shutil.copytree(gpt2_folder, other)
    network = AutoModelForCausalLM.from_pretrained(other)
    with torch.no_grad():
        network.transformer.h[1].attn.c_attn.weight[:, :8] *= -3
    network.save_pretrained(other)
    return gpt2_folder, other


@pytest.fixture(scope="module")
def pair(folders, start):
    one, two = (Live(load_model(str(folder))) for folder in folders)
    return start(serve_app(one, two))


def own(folder, text=TEXT):
    """Transformers' own patterns [layer head query key] and mean loss on a text."""
    backend = AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([[backend.bos_token_id, *backend(text)["input_ids"]]])
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        out = network(ids, output_attentions=True, labels=ids)
    return torch.stack(out.attentions)[:, 0].double().numpy(), float(out.loss)


CELLS = """
  await type(%s);
  await settled(() => $("#head h2") || $("#head .lead"));
  const alpha = (canvas) => { const { width, height } = canvas; return [...canvas.getContext("2d").getImageData(0, 0, width, height).data].filter((_, i) => i %% 4 === 3); };
  const cells = Object.fromEntries($$(".pictures .cell").map((cell) => [cell.dataset.head, { alpha: alpha(cell.querySelector("canvas")), bars: [...cell.querySelectorAll(".sink")].map((bar) => bar.style.height || bar.style.width) }]));
  return { cells, apart: $("#apart").textContent, change: $("#change").textContent };
"""


def test_both_halves_of_a_cell_are_the_models_own_numbers(pair, folders):
    seen = pair.drive(CELLS % json.dumps(TEXT))
    assert seen.errors == []
    assert all(name.startswith(pair.address) for name in seen.requests)
    (one, loss), (two, other_loss) = (own(folder) for folder in folders)
    side = one.shape[-1] - 1
    below, above = (np.sqrt(patterns[..., 1:, 1:]) for patterns in (one, two))
    assert abs(below - above).max() > 0.3  # one head looks elsewhere: the halves can be told apart
    for layer, head in np.ndindex(2, 4):
        cell = seen.found["cells"][f"L{layer}H{head}"]
        drawn = np.array(cell["alpha"]).reshape(side, side) / 255
        expected = np.tril(below[layer, head]) + np.triu(above[layer, head].T, 1)
        assert abs(drawn - expected).max() < 0.004, (
            f"L{layer}H{head}"
        )  # half of 1/255, and rounding
        sinks = [100 * patterns[layer, head, 1:, 0].mean() for patterns in (one, two)]
        assert [float(bar.removesuffix("%")) for bar in cell["bars"]] == pytest.approx(sinks, abs=1)
    gap = abs(one - two).sum(-1)[1, 0, 1:].mean() / 2
    assert gap > 0.02
    assert f": {CHANGED} {gap:.2f}, " in seen.found["apart"]
    assert f"{loss:.2f}" in seen.found["change"]
    assert f": {other_loss:.2f}" in seen.found["change"]


def test_axe_finds_no_fault_in_a_pair(pair):
    keys = opened_at(f"{pair.address}/#head=L1H0")
    keys.wait_for("document.querySelectorAll('#head canvas').length === 2")
    assert axe_faults(keys) == {}
