"""The files for DuoAttention and kvpress: read by their rules, just the heads stream that may."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import WriteError
from headscope.studies.streaming.duo_attention import export_duo_attention
from headscope.studies.streaming.gates import read_gates
from headscope.studies.streaming.streaming_heads import SinkWindow
from headscope.studies.streaming.streaming_result import CHANGE, Cache, Streaming
from tests.helpers.models import save_model


def made_up(layers: list[int], heads: int, free: int) -> Streaming:
    """Heads that stream in an order drawn at random, the first `free` of them without loss."""
    count = len(layers) * heads
    place = 1 + np.random.default_rng(0).permutation(count)
    table = pd.DataFrame(
        {
            "layer": np.repeat(layers, heads),
            "head": np.tile(range(heads), len(layers)),
            "place": place,
        }
    )
    steps = sorted({0, free, count})
    rise = [0.0 if step <= free else 1.0 for step in steps]
    nothing = np.full(len(steps), np.nan)
    curve = pd.DataFrame(
        {"order": CHANGE, "heads": steps, "rise": rise, "ci_low": nothing, "ci_high": nothing}
    )
    cache = Cache(100, 4, np.full(count, 100), np.full(count, 36))
    return Streaming("made", table, curve, SinkWindow(4, 32), cache, 0.01)


def read(folder):
    """Both files as `load_attn_pattern` of DuoAttention and kvpress read them."""
    scores = np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t")
    return np.clip(scores, 0, 1), json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("free", [0, 1, 5, 11, 12])
def test_just_the_heads_stream_that_may(free, tmp_path):
    streaming = made_up([0, 1, 2], 4, free)
    scores, config = read(export_duo_attention(streaming, tmp_path / "duo"))
    expected = streaming.table.pivot(index="layer", columns="head", values="streams").to_numpy()
    assert expected.sum() == free
    assert (config["sink_size"], config["recent_size"]) == (4, 32)
    # kvpress: so many heads as the ratio says, the lowest scores first
    ratio = config["head_compression_ratio"]
    pruned = np.argsort(scores, axis=None)[: round(scores.size * ratio)]
    assert sorted(pruned) == np.flatnonzero(expected).tolist()
    # DuoAttention: below a quantile, of scores with a little noise; all and none apart
    noisy = scores + np.random.default_rng(1).uniform(0, 1e-6, scores.shape)
    if 0 < ratio < 1:
        assert ((noisy < np.quantile(noisy, ratio)) == expected).all()
    assert ((scores < 0.5) == expected).all()


def test_other_ratios_follow_the_order_of_change(tmp_path):
    streaming = made_up([0, 1, 2], 4, 5)
    scores, _ = read(export_duo_attention(streaming, tmp_path / "duo"))
    assert np.argsort(scores, axis=None).tolist() == np.argsort(streaming.heads["place"]).tolist()
    # the program's own reader of such files
    gates = read_gates(tmp_path / "duo" / "full_attention_heads.tsv", "made", 3, 4)
    assert pd.Series(gates).corr(streaming.heads["place"], method="spearman") == pytest.approx(1)


def test_a_hybrid_s_rows_are_the_model_s_layers(tmp_path):
    streaming = made_up([1, 3], 2, 3)
    scores, config = read(export_duo_attention(streaming, tmp_path / "duo"))
    assert scores.shape == (4, 2)
    assert (scores[[0, 2]] == 1).all()
    pruned = np.argsort(scores, axis=None)[: round(8 * config["head_compression_ratio"])]
    own = streaming.table[streaming.table["streams"]]
    assert sorted(pruned) == (2 * own["layer"] + own["head"]).tolist()


@pytest.fixture(scope="module")
def llama(tokenizer, tmp_path_factory):
    return save_model("llama", tokenizer, tmp_path_factory.mktemp("llama"), layers=3)


OPTIONS = ("--sinks", 2, "--recent", 8, "--max-length", 60, "--max-tokens", 300, "--tolerance", 0.5)


def test_the_command_writes_both_files_and_replaces_only_its_own(llama, story, tmp_path, command):
    out = tmp_path / "duo"
    words = ("export", "duo-attention", llama, "--corpus", story, *OPTIONS, "--out", out, "-q")
    code, told, err = command(*words)
    assert code == 0, err
    assert f"written to {out}" in told
    assert "key/value heads may keep 2 sinks and the last 8 keys" in told
    scores, config = read(out)
    assert scores.shape == (3, 2)
    assert config["recent_size"] == 8
    study = hs.studies.streaming(
        llama, story, sinks=2, recent=8, max_length=60, max_tokens=300, tolerance=0.5
    )
    assert ((scores < 0.5).ravel() == study.table["streams"]).all()
    code, _, err = command(*words)
    assert code == 2
    assert "holds a DuoAttention export already" in err
    (out / "notes.txt").write_text("precious")
    export_duo_attention(study, out, overwrite=True)
    assert (out / "notes.txt").read_text() == "precious"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "a.tex").write_text("precious")
    with pytest.raises(WriteError, match="holds other files and no DuoAttention export"):
        export_duo_attention(study, tmp_path / "thesis", overwrite=True)


KVPRESS = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
import torch
from kvpress.presses import duo_attention_press as theirs
from transformers import AutoModelForCausalLM

folder, name = Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")

def get(url):
    text = (folder / url.rpartition("/")[2]).read_text()
    return SimpleNamespace(text=text, json=lambda: json.loads(text))

theirs.requests.get = get
theirs.PATTERNS_DICT[model.config.name_or_path] = "ours"
ratio = get("/config.json").json()["head_compression_ratio"]
press = theirs.DuoAttentionPress(head_compression_ratio=ratio)
press.post_init_from_model(model)
keys = torch.zeros(1, 2, 50, model.model.layers[0].self_attn.head_dim)
cut = []
for block in model.model.layers:
    press.compress(block.self_attn, None, keys, keys, None, {})
    cut.append([index.tolist() for index in block.self_attn.masked_key_indices[1:]])
print(json.dumps({"mask": press.streaming_mask.tolist(), "cut": cut}))
"""
"""In a process of its own: to import kvpress changes the attention of transformers for good."""


def test_kvpress_lets_the_same_heads_stream(llama, tmp_path):
    if importlib.util.find_spec("kvpress") is None:
        pytest.skip("needs kvpress")
    streaming = made_up([0, 1, 2], 2, 4)
    folder = export_duo_attention(streaming, tmp_path / "duo")
    words = [sys.executable, "-c", KVPRESS, str(folder), str(llama)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    expected = streaming.table["streams"].to_numpy().reshape(3, 2)
    assert found["mask"] == expected.tolist()
    for streams, (heads, positions) in zip(expected, found["cut"], strict=True):
        # all but 4 sinks and the last 32 of 50 keys
        cut = [[head, key] for head in np.flatnonzero(streams) for key in range(4, 50 - 32)]
        assert [list(pair) for pair in zip(heads, positions, strict=True)] == cut
