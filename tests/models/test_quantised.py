"""Quantised folders are read as the numbers that they stand for, or refused by one sentence."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from headscope.models.load import load_model
from tests.helpers.models import edit_config, save_model

WEIGHTS = "model.safetensors"
FP8 = {
    "quant_method": "fp8",
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
}
BITSANDBYTES = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


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


def test_quantised_weights_are_the_numbers_that_they_stand_for(rounded, llama):
    models = [load_model(str(folder)) for folder in (*rounded, llama)]
    packed, plain, before = (model.engine.network.state_dict() for model in models)
    assert packed.keys() == plain.keys()
    assert all(torch.equal(packed[key], plain[key]) for key in plain)
    assert any(not torch.equal(packed[key], before[key]) for key in before)
    assert [note for note in models[0].notes if "quantised (fp8)" in note] == [*models[0].notes]
    assert not models[1].notes


@pytest.mark.parametrize(
    ("quantisation", "message"), [(BITSANDBYTES, "bitsandbytes"), ({"bits": 4}, "quant_method")]
)
def test_what_transformers_cannot_read_here_is_one_line_and_anatomy_counts_it(
    llama, tmp_path, command, quantisation, message
):
    folder = Path(shutil.copytree(llama, tmp_path / "model"))
    edit_config(folder, quantization_config=quantisation)
    code, _, error = command("classify", folder, "--out", tmp_path / "run")
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1
    counted = [
        re.findall(
            r"[\d,]+ parameters", " ".join(command("study", "anatomy", each)[1].split())[:400]
        )
        for each in (llama, folder)
    ]
    assert counted[0] == counted[1] != []
