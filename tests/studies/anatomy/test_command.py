"""`headscope study anatomy` as its users see it: tables, CSV, JSON, messages and exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys

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


def test_mini_is_shown_with_formula_and_count_side_by_side():
    told = headscope("study", "anatomy", "mini")
    assert told.returncode == 0, told.stderr
    lines = [line.split() for line in told.stdout.splitlines()]
    layers, d_ff = MINI["n_layer"], MINI["n_inner"]
    per_layer = 4 * (256 * 256 + 256) + 2 * 256 * d_ff + d_ff + 256 + 4 * 256
    parameters = f"{(1024 + 256) * 256 + layers * per_layer + 2 * 256:,}"
    assert f"mini: {layers} layers × 8 heads, 8 key/value heads, {parameters} param" in told.stdout
    assert f"d_model 256, d_head 32, d_ff {d_ff}, vocabulary 1,024, context 256" in told.stdout
    assert ["W_Q", *"d_model × heads × d_head".split(), "65,536", "65,536", "yes"] in lines
    assert any(line[:1] == ["total"] and line[-2:] == [parameters, "yes"] for line in lines)
    assert max(map(len, told.stdout.splitlines())) <= 100


def test_the_published_list_needs_no_model_and_no_torch():
    code = (
        "import sys\nfrom headscope.cli import app\n"
        "app(['anatomy', '--published'], standalone_mode=False)\n"
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["False", "False"]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["llama-2-70b", "68,976,648,192", "70B", "80", "GiB", "10", "GiB", "1.25", "GiB"] in rows
    assert "Brown et al. 2020, table 2.1: gpt-3-175b" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert run().stdout == run("--published").stdout


def test_the_published_list_for_other_programs():
    rows = list(csv.DictReader(io.StringIO(run("--format", "csv", "--batch", 16).stdout)))
    objects = json.loads(run("--published", "--format", "json", "--batch", 16).stdout)
    assert len(rows) == len(objects) == 7
    assert int(rows[-1]["cache_bytes_own"]) == objects[-1]["cache_bytes_own"] == 20 * 2**30
    assert all(each["source"] for each in objects)


def test_csv_and_json_hold_the_same_numbers(model_folder):
    rows = list(csv.DictReader(io.StringIO(run(model_folder, "--format", "csv").stdout)))
    content = json.loads(run(model_folder, "--format", "json").stdout)
    own = {row["name"]: row for row in rows if row["section"] == "parameters"}
    assert len(own) == len(content["parameters"])
    for part in content["parameters"]:
        row = own[part["part"]]
        assert (int(row["value"]), int(row["counted"])) == (part["by_formula"], part["counted"])
        assert (row["holds"], part["agrees"]) == ("True", True)
    sizes = [int(row["value"]) for row in rows if row["section"] == "cache"]
    assert sizes == [size["bytes"] for size in content["cache"]["sizes"]]
    assert content["dimensions"]["d_model"] == 32


def test_the_cache_is_for_the_context_batch_and_dtype_that_are_asked_for():
    asked = ("--context", 100, "--batch", 3, "--dtype", "float32", "--format", "json")
    content = json.loads(run("mini", *asked).stdout)
    full = content["cache"]["sizes"][0]
    assert full["bytes"] == 2 * MINI["n_layer"] * MINI["n_embd"] * 100 * 3 * 4
    assert (content["cache"]["context"], content["cache"]["dtype"]) == (100, "float32")
    assert json.loads(run("mini", "--format", "json").stdout)["cache"]["context"] == 256
    assert not any("own limit" in note for note in content["notes"])
    assert "note: 300 tokens are more than the model's own limit of 256" in (
        run("mini", "--context", 300).stdout
    )


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
        (["--dtype", "int8"], "no dtype named 'int8'; choose from: float16, bfloat16"),
        (["--context", "0"], "context is 0, expected a whole number from 1"),
        (["mini", "--published"], "mini and --published: the list of published shapes takes no"),
        (["--revision", "x"], "--revision: the list of published shapes takes no model"),
        (["./nowhere"], r"\./nowhere: no such folder$"),
        (["nowhere.json"], r"nowhere\.json: no such file$"),
        (["text.txt"], r"text\.txt: a model is a folder, a config\.json, a \.gguf file, a hub"),
        (["."], "no config.json in this folder; a model in Hugging Face layout has one"),
        (["broken.json"], "broken.json: broken.json is not JSON: Expecting property name"),
        (["typeless.json"], "typeless.json: transformers cannot read its configuration"),
        (["broken.gguf"], "broken.gguf: not a whole GGUF file: it ends after 15 bytes, within its header"),
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


def test_the_hub_out_of_reach_is_said_with_a_way_on(monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(hs.HeadscopeError) as error:
        hs.anatomy("gpt2-xl")
    assert "'gpt2-xl' is no local folder, and the Hugging Face hub cannot" in str(error.value)
    assert str(error.value).endswith("Or take the published shape gpt-2-xl")


def test_of_a_hub_model_the_configuration_is_enough(gpt2_folder, tmp_path, monkeypatch):
    from headscope.models import locate

    asked = []
    shutil.copy(gpt2_folder / "config.json", tmp_path)

    def download(name, revision, files):
        asked.append(tuple(files))
        return tmp_path, "abc"

    monkeypatch.setattr(locate, "download", download)
    assert "no weights here" in hs.anatomy("someone/small").counted_from
    assert asked == [("config.json",)]


def test_a_pipe_is_no_model(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(hs.HeadscopeError, match="pipe: neither a file nor a folder"):
        hs.anatomy(tmp_path / "pipe")
