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
from headscope.models import adapter
from headscope.models.adapter import CONFIG, WEIGHTS
from headscope.models.load import load_model
from headscope.runs.reopen_model import model_of
from tests.limits import no_hang

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
        (renamed, r"holds base_model\.\S*\.h\.99\.\S*, and the model has no such part"),
        (without_one, r"lacks base_model\.\S*\.h\.0\.\S*, which its adapter_config.json asks for"),
        (wider, "cannot be merged into this model: .* size mismatch"),
        (no_numbers, "cannot be merged into this model: NaNs detected in the merged weights"),
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
    with pytest.raises(ModelError, match=f"{CONFIG} has no peft_type, which names its kind"):
        load_model("mini", adapter=str(tmp_path))


def configured(lora: Path, to: Path, **fields) -> str:
    folder = shutil.copytree(lora, to)
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | fields))
    return str(folder)


SLOW = r"(([a-z_.0-9]+)+)+!"


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": SLOW},
        {"exclude_modules": SLOW},
        {"modules_to_save": [SLOW]},
        {"rank_pattern": {SLOW: 3}},
        {"alpha_pattern": {SLOW: 3}},
        {"layers_pattern": [SLOW], "layers_to_transform": [0]},
        {"target_modules": ".*" * 14 + "!"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_expression_that_would_hold_the_process_is_refused(fields, lora, tmp_path, monkeypatch):
    monkeypatch.setattr(adapter, "DEADLINE", 0.5)
    with no_hang(60), pytest.raises(ModelError, match="a regular expression in its adapter_config"):
        load_model("mini", adapter=configured(lora, tmp_path / "slow", **fields))


def test_expressions_that_are_in_use_are_read(lora, tmp_path):
    """As in PEFT's documentation, and as unsloth writes them, with parts that may be anything."""
    listed = load_model("mini", adapter=str(lora)).engine.network.state_dict()
    for number, said in enumerate(
        (
            r".*\.c_attn",
            r"(?:.*?(?:transformer).*?(?:attn).*?c_attn)|(?:\bmodel\.layers\.[\d]{1,}\.(?:q_proj))",
        )
    ):
        there = configured(lora, tmp_path / str(number), target_modules=said)
        found = load_model("mini", adapter=there).engine.network.state_dict()
        assert all(torch.equal(listed[name], tensor) for name, tensor in found.items())


SAVE = "save the adapter again with PEFT's save_pretrained, or copy it again"
BRACES = "it should be a group of entries in braces, as save_pretrained of PEFT writes it"
NO_CONFIG = [
    ("", f"is not JSON: Expecting value: line 1 column 1 (char 0); {SAVE}"),
    ('{"r": ', f"is not JSON: Expecting value: line 1 column 7 (char 6); {SAVE}"),
    ("[" * 100_000, "is not JSON: "),
    ("[]", f"is no configuration but []; {BRACES}"),
    ("null", f"is no configuration but None; {BRACES}"),
    ("{}", f"has no peft_type, which names its kind, such as LORA; {SAVE}"),
    (
        '{"peft_type": "NOSUCH"}',
        "gives peft_type as 'NOSUCH', which PEFT does not know; choose from: ",
    ),
    ('{"peft_type": 5}', "gives peft_type as 5, which PEFT does not know; choose from: "),
]
WRONG = [
    ("r", float("nan"), "nan; it should be a finite number"),
    ("r", "x", "'x'; it should be a whole number"),
    ("r", 10**30, f"{10**30}; it should be a whole number of at most 64 bits"),
    ("lora_alpha", float("inf"), "inf; it should be a finite number"),
    ("lora_alpha", None, "None; it should be a whole number"),
    ("lora_dropout", -1, "-1; it should be a number from 0 to 1"),
    ("target_modules", 5, "5; it should be a list of texts, a text or null"),
    ("target_modules", [5], "[5]; it should be a list of texts, a text or null"),
    ("target_modules", "(", "'(', which is no regular expression (missing ), unterminated subpattern at "
                            'position 0); a list of names, such as ["q_proj", "v_proj"], would do'),
    ("bias", "x", "'x'; it should be 'none', 'all' or 'lora_only'"),
    ("rank_pattern", [], "[]; it should be a group in braces or null"),
    ("layers_to_transform", "x", "'x'; it should be a list of whole numbers, a whole number or null"),
    ("fan_in_fan_out", "x", "'x'; it should be true or false"),
]  # fmt: skip


def said_of(folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        load_model("mini", adapter=str(folder))
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(f"mini: adapter {folder.name}")


@pytest.mark.parametrize(("content", "said"), NO_CONFIG)
def test_a_file_that_is_no_adapters_configuration_is_named(lora, tmp_path, content, said):
    folder = shutil.copytree(lora, tmp_path / "mine")
    (folder / CONFIG).write_text(content)
    assert said_of(folder).startswith(f": {CONFIG} {said}")


@pytest.mark.parametrize(("key", "value", "said"), WRONG)
def test_an_entry_by_which_no_adapter_can_be_built_is_named(lora, tmp_path, key, value, said):
    folder = shutil.copytree(lora, tmp_path / "mine")
    stated = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(stated | {key: value}))
    assert said_of(folder) == f": {CONFIG} gives {key} as {said}"


@pytest.mark.parametrize("key", ["r", "lora_alpha", "target_modules"])
def test_an_entry_for_which_peft_would_take_its_own_is_named(lora, tmp_path, key):
    folder = shutil.copytree(lora, tmp_path / "mine")
    stated = json.loads((folder / CONFIG).read_text())
    del stated[key]
    (folder / CONFIG).write_text(json.dumps(stated))
    assert said_of(folder) == f": {CONFIG} has no {key}, and PEFT would take its own; {SAVE}"


@pytest.mark.parametrize("size", [0, 7, 50, 20_000])
def test_weights_that_are_not_whole_are_named(lora, tmp_path, size):
    folder = shutil.copytree(lora, tmp_path / "mine")
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:size])
    assert said_of(folder).startswith(f": {WEIGHTS} is no safetensors file, or not whole: ")


def test_an_adapter_as_others_write_it_is_read(lora, tmp_path):
    """With entries that PEFT does not know, a fraction for alpha, and names with a number in them."""
    folder = shutil.copytree(lora, tmp_path / "mine")
    stated = json.loads((folder / CONFIG).read_text())
    odd = {"lora_alpha": 6.0, "enable_lora": None}
    (folder / CONFIG).write_text(json.dumps(stated | odd))
    same = load_model("mini", adapter=str(lora)).engine.network.state_dict()
    for key, weight in load_model("mini", adapter=str(folder)).engine.network.state_dict().items():
        torch.testing.assert_close(weight, same[key])
    (folder / CONFIG).write_text(json.dumps(stated | {"init_lora_weights": "pissa_niter_16"}))
    assert load_model("mini", adapter=str(folder)).layers == 6
