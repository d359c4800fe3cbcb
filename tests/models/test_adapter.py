"""An adapter is merged into its model, and what does not fit is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.errors import ModelError
from headscope.models.adapter import CONFIG, WEIGHTS
from headscope.models.load import load_model
from headscope.runs.reload import model_of

TOKENS = torch.arange(5, 45).view(1, -1)


def network() -> AutoModelForCausalLM:
    return AutoModelForCausalLM.from_pretrained(mini_folder(), local_files_only=True)


@pytest.fixture(scope="module")
def lora(tmp_path_factory) -> Path:
    """Of rank 3, on the projections of all layers, with weights that are not 0."""
    folder = tmp_path_factory.mktemp("adapters") / "lora"
    torch.manual_seed(0)
    config = LoraConfig(r=3, lora_alpha=6, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(network(), config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(folder)
    return folder


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


def test_the_merged_model_is_the_one_that_peft_runs(lora):
    from peft import PeftModel

    theirs = logits(PeftModel.from_pretrained(network(), lora).eval())
    ours = logits(load_model("mini", adapter=str(lora)).engine.network)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert (theirs - logits(network().eval())).abs().max() > 0.1


def test_base_and_adapter_are_both_told_by_their_sums(lora):
    base, both = load_model("mini"), load_model("mini", adapter=str(lora))
    more = both.weights_sha256.keys() - base.weights_sha256.keys()
    assert more == {f"lora/{CONFIG}", f"lora/{WEIGHTS}"}
    assert base.weights_sha256.items() <= both.weights_sha256.items()


def test_a_run_finds_its_adapter_again_and_says_no_absolute_path(lora, tmp_path):
    how = {"types": ("positional",), "max_tokens": 600, "twin": False}
    run = hs.classify("mini", "gold", adapter=str(lora), out=tmp_path / "run", **how)
    said = (tmp_path / "run" / "run.json").read_text()
    assert str(lora) not in said
    assert "--adapter lora" in json.loads(said)["command"]
    assert "lora" in json.loads(said)["places"]["adapter"]
    again = hs.load(tmp_path / "run")
    assert model_of(again).weights_sha256 == load_model("mini", adapter=str(lora)).weights_sha256
    plain = hs.classify("mini", "gold", **how)
    assert not plain.evidence["mass"].equals(run.evidence["mass"])


def test_a_run_without_its_adapter_says_so(lora, tmp_path):
    copy = shutil.copytree(lora, tmp_path / "mine")
    how = {"types": ("positional",), "max_tokens": 600, "twin": False}
    hs.classify("mini", "gold", adapter=str(copy), out=tmp_path / "run", **how)
    shutil.rmtree(copy)
    with pytest.raises(ModelError, match="adapter 'mine' is no longer where it was"):
        model_of(hs.load(tmp_path / "run"))


def changed(lora: Path, to: Path, change) -> str:
    folder = shutil.copytree(lora, to)
    weights = load_file(folder / WEIGHTS)
    save_file(change(weights), folder / WEIGHTS)
    return str(folder)


def renamed(weights):
    return {name.replace(".h.0.", ".h.99."): w for name, w in weights.items()}


def without_one(weights):
    return dict(list(weights.items())[1:])


def wider(weights):
    return {n: torch.cat([w, w], -1) if "lora_A" in n else w for n, w in weights.items()}


def no_numbers(weights):
    return {name: w * float("nan") for name, w in weights.items()}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (renamed, "is not in both it and the model"),
        (without_one, "is not in both it and the model"),
        (wider, "does not fit this model"),
        (no_numbers, "does not fit this model"),
    ],
)
def test_what_does_not_fit_is_refused(change, said, lora, tmp_path):
    with pytest.raises(ModelError, match=said):
        load_model("mini", adapter=changed(lora, tmp_path / "odd", change))


def test_an_adapter_of_added_tokens_is_refused(tmp_path):
    config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    get_peft_model(network(), config).save_pretrained(tmp_path / "prompt")
    with pytest.raises(ModelError, match="adds tokens and changes no weights"):
        load_model("mini", adapter=str(tmp_path / "prompt"))


@pytest.mark.parametrize("path", ["~nobody/x", "x" * 5000, "a\0b"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ModelError, match="adapter"):
        load_model("mini", adapter=path)


def test_what_is_no_adapter_is_refused(tmp_path):
    with pytest.raises(ModelError, match=f"there is no {CONFIG}"):
        load_model("mini", adapter=str(tmp_path))
    (tmp_path / CONFIG).write_text("{}")
    with pytest.raises(ModelError, match=f"there is no {WEIGHTS}"):
        load_model("mini", adapter=str(tmp_path))
    (tmp_path / WEIGHTS).write_bytes(b"nothing")
    with pytest.raises(ModelError, match="does not fit this model"):
        load_model("mini", adapter=str(tmp_path))
