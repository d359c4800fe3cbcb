"""Models that are in memory: the same evidence as from their folder, and the user's left as is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
)

import headscope as hs
from headscope.errors import HeadscopeError, ModelError, RunError
from headscope.models.load import load_model

TEXT = "Alice was very tired. She looked at the old keys again. " * 60
ASKED = {"types": ["positional", "induction"], "max_tokens": 600, "max_length": 64}
NUMBERS = ["n", "mass", "control", "lift", "ci_low", "ci_high", "hit_rate"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "alice.txt"
    path.write_text(TEXT)
    return path


def pair_of(folder):
    # in training mode and with its own attention: neither may come into what is measured
    model = AutoModelForCausalLM.from_pretrained(folder).train()
    return model, AutoTokenizer.from_pretrained(folder)


def test_a_pair_gives_the_evidence_of_its_folder_bit_for_bit_and_stays_as_it_was(
    model_folder, text, tmp_path
):
    from_folder = hs.classify(str(model_folder), text, **ASKED)
    model, tokenizer = pair_of(model_folder)
    attention = model.config._attn_implementation
    modules = {name: type(module) for name, module in model.named_modules()}
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run = hs.classify((model, tokenizer), text, out=tmp_path / "run", **ASKED)
    assert run.info["engine"] == "fused"
    assert run.evidence.equals(from_folder.evidence)
    assert run.name == model_folder.name
    assert model.training
    assert model.config._attn_implementation == attention
    assert {name: type(module) for name, module in model.named_modules()} == modules
    assert all(torch.equal(model.state_dict()[name], was) for name, was in before.items())
    # the run goes back to the model that it keeps; one that was read back asks for it
    pattern = run.show("L0H1", "the old keys").pattern
    again = hs.load(tmp_path / "run")
    with pytest.raises(ModelError, match="source="):
        again.show("L0H1", "the old keys")
    assert (again.show("L0H1", "the old keys", source=(model, tokenizer)).pattern == pattern).all()
    assert (hs.show((model, tokenizer), "L0H1", "the old keys").pattern == pattern).all()
    with torch.no_grad():
        next(model.parameters()).mul_(1.5)
    with pytest.raises(RunError, match="weights"):
        run.show("L0H1", "the old keys")


def test_a_bridge_and_a_loaded_model_give_the_evidence_of_their_folder(gpt2_folder, text):
    """Of one layout: tests of engines compare them on all."""
    from transformer_lens.model_bridge import TransformerBridge

    from_folder = hs.classify(str(gpt2_folder), text, **ASKED).evidence[NUMBERS]
    loaded = load_model(str(gpt2_folder))
    assert hs.classify(loaded, text, **ASKED).evidence[NUMBERS].equals(from_folder)
    bridge = TransformerBridge.boot_transformers(str(gpt2_folder), device="cpu")
    run = hs.classify(bridge, text, **ASKED)
    assert run.info["engine"] == "lens"
    close = np.isclose(run.evidence[NUMBERS], from_folder, rtol=0, atol=1e-5, equal_nan=True)
    assert close.all()


WRONG = {
    "no tokenizer": (lambda m, t, f: (m, None), r"\(model, tokenizer\)"),
    "turned": (lambda m, t, f: (t, m), r"\(model, tokenizer\)"),
    "alone": (lambda m, t, f: m, r"\(model, tokenizer\)"),
    "no head": (lambda m, t, f: (AutoModel.from_pretrained(f), t), "next token"),
    "number": (lambda m, t, f: 123, "name or path"),
    "module": (lambda m, t, f: torch.nn.Linear(2, 2), "name or path"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_model_in_memory_is_refused_in_one_sentence(gpt2_folder, text, case):
    make, message = WRONG[case]
    given = make(*pair_of(gpt2_folder), gpt2_folder)
    with pytest.raises(HeadscopeError, match=message) as error:
        hs.classify(given, text, **ASKED)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "option", [("device", "meta"), ("revision", "main"), ("dtype", "bfloat16")]
)
def test_what_a_model_in_memory_is_not_is_refused(gpt2_folder, text, option):
    with pytest.raises(ModelError, match=option[0]):
        hs.classify(pair_of(gpt2_folder), text, **ASKED, **dict([option]))


def small_networks():
    """Networks that read no tokens: of images, of two kinds of input, of a series."""
    from transformers import (
        CLIPConfig,
        CLIPModel,
        PatchTSTConfig,
        PatchTSTModel,
        ViTConfig,
        ViTModel,
    )

    small = {"hidden_size": 8, "intermediate_size": 8}
    small |= {"num_hidden_layers": 1, "num_attention_heads": 2}
    image = {"image_size": 8, "patch_size": 4}
    parts = {"text_config": small | {"vocab_size": 9}, "vision_config": small | image}
    series = PatchTSTConfig(d_model=8, num_hidden_layers=1, num_attention_heads=2, ffn_dim=8)
    return [
        ViTModel(ViTConfig(**small, **image)),
        CLIPModel(CLIPConfig(**parts, projection_dim=8)),
        PatchTSTModel(series),
    ]


def test_a_network_without_an_embedding_of_tokens_is_refused(tokenizer, text):
    for network in small_networks():
        kind = type(network).__name__
        with pytest.raises(ModelError, match=kind):
            hs.patterns((network, tokenizer), TEXT)
        with pytest.raises(ModelError, match=kind):
            hs.classify((network, tokenizer), text)


def test_a_shorter_window_than_was_asked_for_is_noted(gpt2_folder, text):
    model = load_model(str(gpt2_folder))
    types = ["positional"]
    asked = hs.classify(model, text, types=types, max_tokens=200, max_length=10**6)
    assert any(str(model.context) in note for note in asked.info["notes"])
    fits = hs.classify(model, text, types=types, max_tokens=200, max_length=model.context)
    assert not any(str(model.context) in note for note in fits.info["notes"])
    assert fits.evidence.equals(asked.evidence)
    # nobody asked for the default
    default = hs.classify(model, text, types=types, max_tokens=200)
    assert not any(str(model.context) in note for note in default.info["notes"])
