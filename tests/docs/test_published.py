"""`docs/published.py` does what is left to do of each model, and one failure stops no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from docs import published
from headscope.corpus.shipped import mini_folder
from headscope.models.packaged import PACKAGED
from headscope.runs.contents import RECORD
from tests.models.hub_server import serve_hub, use

GPT2 = "distilbert/distilgpt2"
"""Scores of its 6 × 12 heads are published."""


def distilgpt2_shape(folder: Path) -> Path:
    """A model with random weights, and mini's words."""
    words = AutoTokenizer.from_pretrained(mini_folder())
    shape = GPT2Config(
        n_layer=6,
        n_head=12,
        n_embd=96,
        n_positions=256,
        vocab_size=len(words),
        bos_token_id=0,
        eos_token_id=0,
    )
    GPT2LMHeadModel(shape).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def call(out: Path, *models: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as end:
        published.main([*models, "--out", str(out), "--max-tokens", "1000"])
    assert int(end.value.code or 0) == code


@pytest.mark.slow
def test_a_batch_goes_on_after_a_failure_and_where_it_was_stopped(
    mini_run, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "published"
    shutil.copytree(mini_run, out / "mini")  # stopped between the run and its page
    record = (out / "mini" / RECORD).read_bytes()
    with serve_hub() as hub:
        hub.models = {GPT2: {"main": distilgpt2_shape(tmp_path / "hub")}}
        use(hub.url, monkeypatch, tmp_path / "cache")
        call(out, "mini", "no/model", GPT2, code=1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["1/3", "mini:"],
        ["2/3", "no/model:"],
        ["3/3", f"{GPT2}:"],
    ]
    assert (out / "mini" / RECORD).read_bytes() == record
    for name in ("mini", "distilbert--distilgpt2"):
        assert (out / f"{name}.png").is_file()
        assert f"({name}.png)" in (out / f"{name}.md").read_text("utf-8")
    assert not (out / "no--model.md").exists()
    assert not (out / "mini.csv").exists()  # no scores of it are published
    ranks = pd.read_csv(out / "distilbert--distilgpt2.csv")
    assert ranks["spearman"].between(-1, 1).all()
    compared = (out / "distilbert--distilgpt2.md").read_text("utf-8")
    assert f"{ranks['spearman'][0]:.3f}" in compared
    assert "(distilbert--distilgpt2-published.png)" in compared
    assert (out / "distilbert--distilgpt2-published.png").is_file()

    pages = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    call(out, "mini", GPT2)  # the hub is gone, and nothing is read again
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == pages


def test_two_models_of_one_name_are_refused_before_anything_is_read(tmp_path):
    call(tmp_path / "published", "a/model.gguf", "b/model.gguf", "mini", "mini", code=2)
    assert not (tmp_path / "published").exists()


def test_a_model_that_is_stopped_stops_the_batch(tmp_path, monkeypatch):
    def stop(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("headscope.classify", stop)
    with pytest.raises(KeyboardInterrupt):
        published.main(["mini", GPT2, "--out", str(tmp_path)])


@pytest.mark.slow
def test_a_packaged_model_has_a_page(smollm2, tmp_path):
    call(tmp_path, smollm2)
    name = Path(PACKAGED["smollm2"].path).stem
    assert "LlamaForCausalLM" in (tmp_path / f"{name}.md").read_text("utf-8")
