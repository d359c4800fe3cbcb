from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from transformer_lens.model_bridge.exceptions import StopAtLayerException
from transformers import AutoModelForCausalLM, GPT2LMHeadModel
from transformers.activations import NewGELUActivation

from headscope.errors import ModelError
from headscope.models.engines.lens import LensEngine
from headscope.models.engines.probe import check_patterns
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.load import load_model
from headscope.models.tokenizer import Tokenizer


def test_every_layout_loads_with_its_shape(model_folder):
    model = load_model(str(model_folder))
    grouped = model.architecture == "LlamaForCausalLM"
    assert (model.layers, model.heads, model.key_value_heads) == (2, 4, 2 if grouped else 4)
    assert model.context == 256
    assert model.tokenizer.bos_string == "<|endoftext|>"
    assert list(model.weights_sha256) == ["model.safetensors"]


@pytest.mark.parametrize("engine", ["fused", "lens"])
def test_an_activation_in_one_kernel_is_the_same_function(gpt2_folder, engine):
    plain = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager")
    assert any(isinstance(module, NewGELUActivation) for module in plain.modules())
    loaded = load_model(str(gpt2_folder), engine=engine).engine
    network = loaded.network if engine == "fused" else loaded.bridge
    assert not any(isinstance(module, NewGELUActivation) for module in network.modules())
    tokens = torch.arange(40)[None]
    with torch.inference_mode():
        ours, theirs = network(tokens), plain(tokens).logits
    ours = ours.logits if engine == "fused" else ours
    assert torch.allclose(ours, theirs, atol=1e-4 * float(theirs.abs().max()))
    assert float(theirs.std()) > 0.1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", r"\./nowhere: no such folder"),
        ("nowhere.gguf", "nowhere.gguf: no such file"),
        ("no such name", "is no folder, no .gguf file and no hub name"),
        ("smolm2", r"smolm2 \(is smollm2 meant\?\) is not a local folder"),
    ],
)
def test_an_unknown_model_is_refused(name, message):
    with pytest.raises(ModelError, match=message):
        load_model(name)


def test_a_revision_of_a_local_model_is_refused(gpt2_folder):
    with pytest.raises(ModelError, match="is a local model, and --revision step1000 chooses"):
        load_model(str(gpt2_folder), revision="step1000")


def test_a_vocabulary_without_bos_is_refused_and_told_the_way_on(gpt2_folder, tokenizer):
    class NoBos:
        is_fast, bos_token_id, eos_token, pad_token, unk_token = True, None, None, "<pad>", None

    with pytest.raises(ModelError, match="Name the token to use with --bos; its special tokens"):
        Tokenizer(NoBos(), name="m")
    assert Tokenizer(tokenizer, name="m", bos="<|endoftext|>").bos == tokenizer.bos_token_id
    with pytest.raises(ModelError, match="'<s>' is not a token of its vocabulary"):
        Tokenizer(tokenizer, name="m", bos="<s>")


def test_random_tokens_leave_special_ones_out(tokenizer):
    ordinary = Tokenizer(tokenizer, name="m").ordinary_tokens(10**6)
    assert tokenizer.bos_token_id not in ordinary
    assert len(ordinary) == len(tokenizer) - 1


def test_a_device_that_is_not_there_is_refused(gpt2_folder):
    with pytest.raises(ModelError, match="device 'cuda:9' is not to be had here"):
        load_model(str(gpt2_folder), device="cuda:9")


class Faulty:
    """A bridge whose second layer gives a pattern of one's choice."""

    def __init__(self, change) -> None:
        self.change = change

    def run_with_hooks(self, tokens, fwd_hooks, **_) -> None:
        n = tokens.shape[1]
        good = torch.ones(1, 4, n, n).tril()
        good = good / good.sum(-1, keepdim=True)
        for i, (_, hook) in enumerate(fwd_hooks):
            pattern = self.change(good.clone()) if i == 1 else good
            if pattern is not None:
                with suppress(StopAtLayerException):  # as the real bridge does
                    hook(pattern, hook=None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p * 1.1, "m: layer 1: rows of the pattern do not sum to 1"),
        (lambda p: p * 0.9, "m: layer 1: rows of the pattern do not sum to 1"),
        (lambda p: p.flip(-1), "m: layer 1 attends to later positions"),
        (lambda p: p[:, :3], r"m: layer 1 gives a pattern of shape \(1, 3, 12, 12\)"),
        (lambda p: p * torch.nan, "m: layer 1 gives attention that is NaN on a short text"),
        (lambda p: None, "m: no attention pattern from layer 1"),
    ],
)
def test_what_is_no_causal_attention_is_refused_by_model_and_layer(change, message):
    stated = AttentionDimensions(
        layers=3, heads=4, key_value_heads=4, d_model=32, d_head=8, vocabulary=100, context=64,
        windows=frozenset(),
    )  # fmt: skip
    engine = LensEngine(Faulty(change), stated)
    with pytest.raises(ModelError, match=message):
        check_patterns(engine, "m", stated, torch.arange(12)[None])


@pytest.mark.parametrize("factor", [0.5, torch.nan])
def test_a_device_that_computes_something_else_is_refused(gpt2_folder, monkeypatch, factor):
    """The processor by another name, which loses a part of a projection without an error."""

    def to(network, device):
        with torch.no_grad():
            network.transformer.h[0].attn.c_attn.weight.mul_(factor)
        return network

    assert load_model(str(gpt2_folder), device="cpu:0").engine.name == "fused"
    monkeypatch.setattr(GPT2LMHeadModel, "to", to)
    with pytest.raises(ModelError, match=r"eager attention differs from softmax\(q·k\) on cpu by"):
        load_model(str(gpt2_folder), device="cpu:0")
