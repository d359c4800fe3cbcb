"""Command `headscope study anatomy`: CSV, JSON, messages and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil

import pytest
from typer.testing import CliRunner

import headscope as hs
from headscope.cli import app
from headscope.corpus.shipped import mini_folder
from tests.helpers.shell import headscope

MINI = json.loads((mini_folder() / "config.json").read_text())


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


def test_the_cache_is_that_of_the_requested_context_batch_and_dtype():
    options = ("--context", 100, "--batch", 3, "--dtype", "float32", "--format", "json")
    content = json.loads(run("mini", *options).stdout)
    (full,) = (row["value"] for row in content["table"] if row["name"] == "full")
    assert full == 2 * MINI["n_layer"] * MINI["n_embd"] * 100 * 3 * 4
    assert (content["context"], content["dtype"]) == (100, "float32")
    assert json.loads(run("mini", "--format", "json").stdout)["context"] == 256
    assert content["notes"] == []
    (note,) = hs.anatomy("mini", context=300).notes
    assert note == "300 tokens exceed the model's longest input of 256"


def test_bad_input_ends_with_one_message_and_exit_code_2(tmp_path):
    done = headscope("study", "anatomy", "mini", "--batch", 0)
    assert done.returncode == 2
    assert done.stderr == "headscope: batch is 0, expected a whole number from 1\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mini", "--context", "-1"], "context is -1, expected a whole number from 1"),
        (["mini", "--dtype", "int8"], "no dtype named 'int8'; choose from: float16, bfloat16"),
        (["./nowhere"], r"\./nowhere: no such folder$"),
        (["nowhere.json"], r"nowhere\.json: no such file$"),
        (["text.txt"], r"text\.txt: a model is a folder, a config\.json, a \.gguf file or a hub"),
        (["."], "no config.json in this folder; a model in Hugging Face layout has one"),
        (["broken.json"], "broken.json is not JSON: Expecting property name"),
        (["typeless.json"], "typeless.json: transformers cannot read its configuration"),
        (["broken.gguf"], "broken.gguf: not a whole GGUF file"),
        (["mamba.json"], r"should give num_attention_heads as a number of at least 1, but gives"),
        (["latent.json"], r"a deepseek_v3 compresses keys and values \(kv_lora_rank 512\)"),
        (["t5.json"], "t5.json: t5 is a model with an encoder and a decoder; headscope reads"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_answered_in_one_line(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("Once upon a time")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "typeless.json").write_text("{}")
    (tmp_path / "broken.gguf").write_bytes(b"GGUF of nothing")
    for name, model_type in (("mamba", "mamba"), ("latent", "deepseek_v3"), ("t5", "t5")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(hs.HeadscopeError, match=message) as error:
        run(*arguments)
    assert "\n" not in str(error.value)


def test_a_damaged_weight_file_is_named(gpt2_folder, tmp_path):
    folder = shutil.copytree(gpt2_folder, tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(hs.HeadscopeError, match=r"model\.safetensors: not a safetensors file"):
        hs.anatomy(str(folder))
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(hs.HeadscopeError, match=r"index\.json: not an index of safetensors files"):
        hs.anatomy(str(folder))


def test_a_hub_out_of_reach_is_named(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(hs.HeadscopeError) as error:
        hs.anatomy("gpt2-xl")
    assert "gpt2-xl is not a local folder, and cannot be fetched" in str(error.value)


def test_of_a_hub_model_the_configuration_is_enough(gpt2_folder, tmp_path, monkeypatch):
    from headscope.models import locate

    asked = []
    shutil.copy(gpt2_folder / "config.json", tmp_path)

    def download(name, revision, files):
        asked.append(tuple(files))
        return tmp_path, "abc"

    monkeypatch.setattr(locate, "download", download)
    assert "no weights here" in hs.anatomy("someone/small").title
    assert asked == [("config.json",)]


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hs.HeadscopeError, match="pipe: neither a file nor a folder"):
        hs.anatomy(tmp_path / "pipe")
