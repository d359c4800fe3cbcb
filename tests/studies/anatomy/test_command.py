"""Command `headscope study anatomy`: CSV, JSON and messages."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.models import locate


def run(*arguments: object):
    return CliRunner().invoke(
        app, ["study", "anatomy", *map(str, arguments)], catch_exceptions=False
    )


def test_csv_and_json_hold_the_same_numbers(model_folder):
    rows = list(csv.DictReader(io.StringIO(run(model_folder, "--format", "csv").stdout)))
    content = json.loads(run(model_folder, "--format", "json").stdout)
    for row, other in zip(rows, content["table"], strict=True):
        texts = {name: "" if value is None else str(value) for name, value in other.items()}
        assert row == texts


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (".", "no config.json in this folder"),
        ("broken.json", "broken.json is not a JSON object: Expecting property"),
        ("typeless.json", "typeless.json: transformers cannot read its configuration"),
        ("broken.gguf", "broken.gguf: not a whole GGUF file"),
        ("mamba.json", "num_attention_heads is missing"),
        ("latent.json", r"a deepseek_v3 compresses keys and values \(kv_lora_rank 512\)"),
        ("t5.json", "t5.json: t5 is a model with an encoder and a decoder; headscope reads"),
    ],
)
def test_a_model_that_cannot_be_counted_is_refused_in_one_line(
    model, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "typeless.json").write_text("{}")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF of nothing")
    for name, model_type in (("mamba", "mamba"), ("latent", "deepseek_v3"), ("t5", "t5")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(hs.HeadscopeError, match=message) as error:
        run(model)
    assert "\n" not in str(error.value)


def test_a_hub_model_needs_only_its_configuration(gpt2_folder, tmp_path, monkeypatch):
    requested = []
    shutil.copy(gpt2_folder / "config.json", tmp_path)

    def download(name, revision, files):
        requested.append(tuple(files))
        return tmp_path, "abc"

    monkeypatch.setattr(locate, "download", download)
    assert "no weights here" in hs.anatomy("someone/small").title
    assert requested == [("config.json",)]
