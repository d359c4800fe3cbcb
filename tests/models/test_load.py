"""Loading: shapes, refusals by what is wrong, BOS, devices, and what a user has set elsewhere."""

from __future__ import annotations

import json
import logging
import re
import shutil
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)
from transformers.activations import NewGELUActivation
from transformers.utils import logging as transformers_logging

import headscope as hs
from headscope.errors import HeadscopeError, ModelError
from headscope.models.engines.choose import check_patterns
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.load import load_model, open_model
from tests.helpers.models import edit_config
from tests.models.tiny import tiny_config

WEIGHTS = "model.safetensors"
STATED = AttentionDimensions(
    layers=2,
    heads=4,
    key_value_heads=4,
    d_model=32,
    d_head=8,
    vocabulary=100,
    context=64,
)


@pytest.mark.parametrize("engine", ["fused", "eager", "lens"])
def test_an_activation_in_one_kernel_is_the_same_function(gpt2_folder, engine):
    plain = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager")
    assert any(isinstance(module, NewGELUActivation) for module in plain.modules())
    loaded = load_model(str(gpt2_folder), engine=engine).engine
    network = loaded.bridge if engine == "lens" else loaded.network
    assert not any(isinstance(module, NewGELUActivation) for module in network.modules())
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        ours, theirs = network(tokens), plain(tokens).logits
    ours = ours if engine == "lens" else ours.logits
    assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))
    assert float(theirs.std()) > 0.1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("./nowhere", {}, r"\./nowhere"),
        ("nowhere.gguf", {}, r"nowhere\.gguf"),
        ("no such name", {}, "no such name"),
        ("smolm2", {}, "smollm2"),
        ("SmolLM2", {}, "is smollm2 meant"),
        ("SmolLM2-135M", {}, "is smollm2 meant"),
        ("sentence-transformers/all-MiniLM-L6-v2", {}, "is minilm meant"),
        ("mini", {"revision": "step1000"}, "--revision"),
        ("mini", {"device": "cuda:9"}, "cuda:9"),
        ("mini", {"device_map": "auto", "device": "cpu"}, "--device"),
        ("mini", {"device_map": "auto", "engine": "lens"}, "fused"),
        ("mini", {"bos": "<s>"}, "<s>"),
    ],
)
def test_a_name_or_option_that_leads_to_no_model_is_refused(name, options, message):
    with pytest.raises(HeadscopeError, match=message):
        load_model(name, **options)


@pytest.mark.parametrize("read", [load_model, hs.load])
@pytest.mark.parametrize("before", ["", "./", "runs/", "./runs/"])
def test_a_mistyped_folder_is_refused_with_the_nearest_name_beside_it(
    read, before, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("tiny-model", "other"):
        (tmp_path / before / name).mkdir(parents=True)
    with pytest.raises(HeadscopeError, match=rf"is {re.escape(before)}tiny-model meant"):
        read(f"{before}tny-model")
    with pytest.raises(HeadscopeError) as refused:
        read(f"{before}nowhere")
    assert "meant" not in str(refused.value)


def no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda folder: (folder / "config.json").unlink(), r"config\.json"),
    "a list": (
        lambda folder: (folder / "config.json").write_text("[]"),
        "JSON|configuration",
    ),
    "no JSON": (
        lambda folder: (folder / "config.json").write_text("{"),
        "JSON|configuration",
    ),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), r"model\.safetensors"),
    "no header": (
        lambda folder: (folder / WEIGHTS).write_bytes(b"no"),
        "safetensors",
    ),
    "no tokenizer": (no_tokenizer, "tokenizer"),
    "a flag": (lambda folder: edit_config(folder, is_causal=False), "later"),
}


@pytest.fixture(scope="module")
def bad(gpt2_folder, tmp_path_factory) -> Path:
    folders = tmp_path_factory.mktemp("bad")
    for name, (change, _) in BAD.items():
        change(Path(shutil.copytree(gpt2_folder, folders / name)))
    return folders


@pytest.mark.parametrize("name", BAD)
def test_a_bad_folder_is_refused_by_what_is_wrong_with_it(bad, name):
    with pytest.raises(ModelError, match=BAD[name][1]):
        load_model(str(bad / name))


def no_bos(tokenizer, folder: Path, **special: str) -> PreTrainedTokenizerFast:
    """The same tokenizer without a BOS token, with another special token behind it."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in config.items() if "os_token" not in k} | special))
    found = AutoTokenizer.from_pretrained(folder)
    assert found.bos_token_id is None
    return found


def tiny_qwen(bos: int):
    config = tiny_config("qwen2")
    config.bos_token_id = bos
    return AutoModelForCausalLM.from_config(config)


def test_a_model_without_bos_is_read_with_the_one_of_its_configuration(tokenizer, tmp_path):
    backend, bos = no_bos(tokenizer, tmp_path, eos_token="the"), tokenizer.bos_token_id
    tiny_qwen(bos).save_pretrained(tmp_path)
    for model in (load_model(str(tmp_path)), open_model((tiny_qwen(bos), backend))):
        assert (model.tokenizer.bos, model.tokenizer.bos_string) == (bos, "<|endoftext|>")
        assert any("no BOS token: <|endoftext|> is put before" in note for note in model.notes)
    assert not load_model(str(tmp_path), bos="<|endoftext|>").notes


def test_an_ordinary_token_is_no_bos_and_eos_serves(tokenizer, tmp_path):
    """A configuration's default is whatever number its class gives."""
    backend = no_bos(tokenizer, tmp_path, eos_token="<|endoftext|>")
    assert open_model((tiny_qwen(5), backend)).tokenizer.bos_string == "<|endoftext|>"
    backend = no_bos(tokenizer, tmp_path)
    with pytest.raises(ModelError, match="--bos"):
        open_model((tiny_qwen(5), backend))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: [p[0], p[1] * 0.9], "m: layer 1"),
        (lambda p: [p[0], p[1].flip(-1)], "m: layer 1"),
        (lambda p: [p[0], p[1][:, :3]], r"\[3, 4\]"),
        (lambda p: [p[0], p[1] * torch.nan], "nan"),
        (lambda p: p[:1], r"\[4\]"),
    ],
)
def test_what_is_no_causal_attention_is_refused_by_model_and_layer(change, message):
    even = torch.ones(1, 4, 12, 12).tril()
    patterns = [even / even.sum(-1, keepdim=True)] * 2
    check_patterns("m", patterns, STATED, least=1.0)
    with pytest.raises(ModelError, match=message):
        check_patterns("m", change(patterns), STATED, least=1.0)


@pytest.mark.parametrize("factor", [0.5, torch.nan])
def test_a_device_that_computes_something_else_is_refused(gpt2_folder, monkeypatch, factor):
    """The processor by another name, which loses a part of a projection without an error."""

    def to(network, device):
        with torch.no_grad():
            network.transformer.h[0].attn.c_attn.weight.mul_(factor)
        return network

    assert load_model(str(gpt2_folder), device="cpu:0").engine.name == "fused"
    monkeypatch.setattr(GPT2LMHeadModel, "to", to)
    with pytest.raises(ModelError, match="eager"):
        load_model(str(gpt2_folder), device="cpu:0")


@pytest.fixture
def spread(monkeypatch, tmp_path):
    """accelerate would keep so small a model in one piece: the second layer goes to the disk."""
    own = AutoModelForCausalLM.from_pretrained
    parts = ("transformer.wte", "transformer.wpe", "transformer.h.0", "transformer.ln_f")
    places = dict.fromkeys([*parts, "lm_head"], "cpu") | {"transformer.h.1": "disk"}

    def load(*args, **options):
        if options.get("device_map") == "auto":
            options |= {"device_map": places, "offload_folder": tmp_path / "offloaded"}
        return own(*args, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)


def test_layers_on_the_disk_give_the_same_sums_and_have_no_null_model(
    gpt2_folder, keys_file, spread
):
    options = {"types": ["positional", "induction"], "max_tokens": 500, "examples": False}
    whole = hs.classify(str(gpt2_folder), keys_file, **options)
    run = hs.classify(str(gpt2_folder), keys_file, device_map="auto", **options)
    for name, array in whole.tally.arrays().items():
        assert np.array_equal(run.tally.arrays()[name], array), name
    assert set(run.info["notes"]) == {*whole.info["notes"], "spread by accelerate over cpu, disk"}
    assert "--device-map auto" in run.info["command"]
    with pytest.raises(ModelError, match="--null-model"):
        hs.classify(str(gpt2_folder), keys_file, device_map="auto", null_model=True, **options)


def settings() -> tuple[object, ...]:
    return (
        transformers_logging.is_progress_bar_enabled(),
        transformers_logging.get_verbosity(),
        logging.getLogger("transformers").level,
        transformers_logging._tqdm_hook,
        list(warnings.filters),
    )


@pytest.mark.parametrize("raises", [True, False])
def test_bars_and_verbosity_of_a_user_stay(gpt2_folder, tmp_path, raises, monkeypatch, capfd):
    monkeypatch.setattr(logging.getLogger("transformers"), "level", logging.DEBUG)
    hook = transformers_logging.set_tqdm_hook(lambda factory, args, named: factory(*args, **named))
    before = settings()
    folder = Path(shutil.copytree(gpt2_folder, tmp_path / "m"))
    if raises:
        edit_config(folder, n_layer="x")
    with pytest.raises(ModelError) if raises else nullcontext():
        load_model(str(folder))
    assert settings() == before
    transformers_logging.set_tqdm_hook(hook)
    assert capfd.readouterr() == ("", "")
