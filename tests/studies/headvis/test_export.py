"""The folder for HeadVis: its contract, the same bytes each time, and no lost files of users."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.studies import headvis as exporting
from headscope.studies.headvis_file import SparseCells, head_file, sample_sequences
from tests.helpers import encoders
from tests.helpers.headvis import METRICS, check_data, read
from tests.helpers.hybrids import save_hybrid
from tests.helpers.models import own_code

FEW = {"sequences": 30, "max_length": 48}


def everything(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


@pytest.fixture(scope="module")
def few(run_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("few") / "data"
    return Path(hs.headvis(run_folder, out, **FEW).values["folder"])


def test_the_folder_holds_what_headvis_asks_and_nothing_else(export, texts):
    folder = Path(export.values["folder"])
    config = check_data(folder)
    assert config["heads"] == [[layer, head] for layer in range(2) for head in range(4)]
    assert (config["n_layers"], config["n_heads"]) == (2, 4)
    assert config["dataset_name"] == texts.name
    assert config["n_sequences"] == export.values["sequences"]
    assert config["seq_len"] == 64
    assert config["dtype"] == "float32"
    assert config["attn_implementation"] == "headscope fused"
    assert sorted(read(folder / "headscope.json")["files"]) == sorted(everything(folder))


@pytest.mark.parametrize(("length", "sequences"), [(16, 200), (64, 120), (256, 30), (600, 10)])
def test_the_largest_files_of_a_head_have_a_megabyte(length, sequences):
    """Eight cells of every token, in windows of any length."""
    windows = [Window("w", np.zeros(length, int), (" tokens",) * length)] * 300
    largest = np.full(300, 0.1234)
    sample = sample_sequences(largest, np.random.default_rng(0), exporting._per_interval(windows))
    assert len(sample) == sequences
    index = np.arange(length)[:, None] * length + length - 8 + np.arange(8)
    cells = SparseCells(index.ravel(), np.full(8 * length, 0.1234))
    file = head_file(windows, largest, sample, {i: cells for i, _ in sample})
    assert 200_000 < len(json.dumps(file, separators=(",", ":"))) < 1_000_000


def test_a_head_has_the_same_bytes_whichever_heads_are_read(run_folder, few, tmp_path):
    again = Path(hs.headvis(run_folder, tmp_path / "b", **FEW).values["folder"])
    assert everything(few) == everything(again)
    some = Path(hs.headvis(run_folder, tmp_path / "c", heads="L1H2,0.3", **FEW).values["folder"])
    assert check_data(some)["heads"] == [[0, 3], [1, 2]]
    for name in ("heads/L0H3.json", "heads/L1H2.json"):
        assert (some / name).read_bytes() == (few / name).read_bytes()


def test_text_with_odd_characters_comes_through(export):
    file = read(Path(export.values["folder"]) / "heads" / "L0H0.json")
    tokens = [token for each in file["sequences"] for token in each["tokens"]]
    text = "".join(tokens)
    for characters in ("<b>&amp;</b>", "⇥", "�", '"', "\\", "{"):
        assert characters in text, characters
    assert "<|endoftext|>" in tokens
    assert any(token.startswith(" ") for token in tokens)
    assert "\u202e" not in text


def test_a_model_of_the_other_engine_has_all_metrics(gpt2_folder, texts, tmp_path):
    folder = tmp_path / "openai"
    folder.mkdir()
    model = own_code(gpt2_folder, folder)
    run = hs.classify(model, texts, max_tokens=600, types=["positional"], max_length=48)
    found = hs.headvis(run, tmp_path / "data", **FEW)
    check_data(Path(found.values["folder"]))
    assert list(found.table)[2:] == METRICS


def test_an_encoder_s_heads_look_both_ways(tmp_path):
    folder = tmp_path / "bert"
    encoders.hand_built().save_pretrained(folder)
    encoders.save_tokenizer(encoders.WORDS, folder)
    text = tmp_path / "made.conllu"
    text.write_text(encoders.corpus(12, seed=0), encoding="utf-8")
    run = hs.classify(folder, text, max_tokens=2_000, types=["positional"], twin=False)
    found = hs.headvis(run, tmp_path / "data")
    check_data(Path(found.values["folder"]))
    rows = found.table.set_index("head")
    assert rows.loc[1, "prev_token_score"] > 0.8
    assert rows.loc[0, "prev_token_score"] < 0.1
    ahead = read(Path(found.values["folder"]) / "heads" / "L0H0.json")
    for each in ahead["sequences"]:
        size = each["seq_len"]
        cells = dict(zip(each["attention_indices"], each["attention_values"], strict=True))
        assert all(cells.get(q * size + q + 1, 0) > 0.8 for q in range(1, size - 2))
        assert each["max_activation"] > 0.8


def test_a_hybrid_s_layers_keep_their_numbers(tokenizer, texts, tmp_path):
    folder = save_hybrid("qwen3_next", tokenizer, tmp_path / "hybrid")
    run = hs.classify(folder, texts, max_tokens=600, types=["positional"], twin=False)
    config = check_data(Path(hs.headvis(run, tmp_path / "data", **FEW).values["folder"]))
    layers = {layer for layer, _ in config["heads"]}
    assert layers == set(run.heads["layer"])
    assert layers < set(range(config["n_layers"]))


def test_short_text_is_refused_or_noted(run_folder, tmp_path, texts):
    out = tmp_path / "data"
    (tmp_path / "short.txt").write_text("a")
    with pytest.raises(HeadscopeError, match=r"short\.txt: no sequence of 3 tokens"):
        hs.headvis(run_folder, out, corpus=tmp_path / "short.txt")
    assert not out.exists()
    assert len(hs.headvis(run_folder, out, corpus=texts / "00.txt", **FEW).notes) == 2


def test_the_page_on_formats_names_every_file_and_metric(few):
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    section = page.split("### HeadVis' data folder")[1].split("\n### ")[0]
    names = [re.sub("L[0-9]H[0-9]", "L5H1", name) for name in everything(few)]
    for name in (*names, *METRICS, *read(few / "heads" / "L0H0.json")):
        assert f"`{name}`" in section, name
