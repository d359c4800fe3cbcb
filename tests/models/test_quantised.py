"""Quantised folders are read as the numbers that they stand for, or refused by one sentence."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import headscope as hs
from headscope.cli import main
from headscope.errors import ModelError
from headscope.models.load import load_model
from tests.helpers.models import edit_config, save_model

WEIGHTS = "model.safetensors"
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
       "weight_block_size": [128, 128]}  # fmt: skip
BITSANDBYTES = {
    "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"
}  # fmt: skip


@pytest.fixture(scope="module")
def llama(tokenizer, tmp_path_factory) -> Path:
    return save_model("llama", tokenizer, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def rounded(llama, tmp_path_factory) -> tuple[Path, Path]:
    """A folder in 8 bits, and one with what its numbers stand for, worked out here."""
    packed, plain = (tmp_path_factory.mktemp("fp8") / name for name in ("packed", "plain"))
    for folder in (packed, plain):
        shutil.copytree(llama, folder)
    tensors = load_file(llama / WEIGHTS)
    small, meant = dict(tensors), dict(tensors)
    for key, weight in tensors.items():
        if "proj" in key:
            scale = weight.abs().max() / 448
            small[key] = (weight / scale).to(torch.float8_e4m3fn)
            small[f"{key}_scale_inv"] = scale.reshape(1, 1)
            meant[key] = small[key].float() * scale
    save_file(small, packed / WEIGHTS, metadata={"format": "pt"})
    save_file(meant, plain / WEIGHTS, metadata={"format": "pt"})
    edit_config(packed, quantization_config=FP8)
    return packed, plain


@pytest.fixture
def command(monkeypatch):
    """Runs a command of headscope and gives its exit code."""

    def call(*words: object) -> int:
        monkeypatch.setattr("sys.argv", ["headscope", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code

    return call


def test_quantised_weights_are_the_numbers_that_they_stand_for(rounded, llama):
    packed, plain = (load_model(str(folder)).engine.network.state_dict() for folder in rounded)
    assert packed.keys() == plain.keys()
    assert all(torch.equal(packed[key], plain[key]) for key in plain)
    before = load_model(str(llama)).engine.network.state_dict()
    assert any(not torch.equal(packed[key], before[key]) for key in before)


def test_a_run_says_how_its_weights_are_quantised_and_has_a_twin(rounded, tmp_path):
    how = {"types": ("positional",), "max_tokens": 600}
    packed, plain = (
        hs.classify(str(folder), "gold", out=tmp_path / folder.name, **how) for folder in rounded
    )
    notes = json.loads((tmp_path / "packed" / "run.json").read_text())["notes"]
    assert [note for note in notes if "quantised (fp8)" in note]
    assert not [note for note in notes if "spread" in note]
    assert not [note for note in plain.info["notes"] if "quantised" in note]
    assert packed.evidence["mass"].equals(plain.evidence["mass"])
    assert packed.evidence["twin_p999"].notna().any()


def test_a_missing_library_is_named_in_one_line(llama, tmp_path, capsys, command):
    folder = Path(shutil.copytree(llama, tmp_path / "model"))
    edit_config(folder, quantization_config=BITSANDBYTES)
    assert command("classify", folder, "--out", tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert "bitsandbytes" in said
    assert len(said.strip().splitlines()) == 1


def test_a_quantisation_without_a_method_is_refused(llama, tmp_path):
    folder = Path(shutil.copytree(llama, tmp_path / "model"))
    edit_config(folder, quantization_config={"bits": 4})
    with pytest.raises(ModelError, match="names no quant_method"):
        load_model(str(folder))


def test_anatomy_counts_a_quantised_model_without_its_library(llama, tmp_path, capsys, command):
    folder = Path(shutil.copytree(llama, tmp_path / "model"))
    edit_config(folder, quantization_config=BITSANDBYTES)
    assert command("study", "anatomy", llama) == 0
    (counted,) = re.findall(r"[\d,]+ parameters", capsys.readouterr().out.split("\n")[0])
    assert command("study", "anatomy", folder) == 0
    said = capsys.readouterr().out
    assert f" {counted}" in said
