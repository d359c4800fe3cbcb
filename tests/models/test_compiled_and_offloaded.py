"""Models in memory that were compiled by torch or offloaded by accelerate."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.causal.direct_paths import direct_paths
from headscope.errors import ModelError
from headscope.models.load import open_model, state_sha256
from tests.helpers.models import save_model
from tests.models.every_layout import attention_of, patterns

TOKENS = torch.arange(5, 29)[None]
# compiled without a compiler, and as far as hooks are concerned the same
compiled = partial(torch.compile, backend="eager")


def layers(network):
    for number, layer in enumerate(network.model.layers):
        network.model.layers[number] = compiled(layer)
    return network


def layers_in_place(network):
    for layer in network.model.layers:
        layer.compile(backend="eager")
    return network


def methods(network):
    for layer in network.model.layers:
        layer.forward = compiled(layer.forward)
    return network


def attention(network):
    for layer in network.model.layers:
        layer.self_attn = compiled(layer.self_attn)
    return network


def projections(network):
    for layer in network.model.layers:
        layer.self_attn.q_proj = compiled(layer.self_attn.q_proj)
    return network


def method_of_the_model(network):
    network.forward = compiled(network.forward)
    return network


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    return save_model("llama", tokenizer, tmp_path_factory.mktemp("plain"))


def pair_of(folder):
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    return network, AutoTokenizer.from_pretrained(folder)


COMPILED = [
    layers,
    layers_in_place,
    methods,
    attention,
    projections,
    method_of_the_model,
    compiled,
]


@pytest.mark.parametrize("change", COMPILED, ids=lambda change: getattr(change, "__name__", "all"))
def test_a_compiled_model_is_read_as_the_model_that_was_compiled(change, folder):
    network, tokenizer = pair_of(folder)
    eager, checksum = attention_of(network, TOKENS), state_sha256(network)
    network = change(network)
    names = [name for name, _ in network.named_modules()]
    model = open_model((network, tokenizer))
    for pattern, expected in zip(patterns(model, TOKENS), eager, strict=True):
        torch.testing.assert_close(pattern, expected, rtol=0, atol=1e-4)
    assert model.weights_sha256 == checksum
    assert not any("merged" in note for note in model.notes)
    # hooks within a layer are called
    assert direct_paths(model).layers == len(eager)
    # the user's model is as compiled as it was
    assert [name for name, _ in network.named_modules()] == names


def spread(network):
    accelerate = pytest.importorskip("accelerate")
    return accelerate.dispatch_model(network, {"": "cpu"}, main_device="cpu", force_hooks=True)


def test_a_model_that_accelerate_spread_in_memory_is_read(folder):
    network, tokenizer = pair_of(folder)
    eager = attention_of(network, TOKENS)
    model = open_model((spread(network), tokenizer))
    for pattern, expected in zip(patterns(model, TOKENS), eager, strict=True):
        torch.testing.assert_close(pattern, expected, rtol=0, atol=1e-4)


def on_processor(network, folder):
    import accelerate

    return accelerate.cpu_offload(network, execution_device=torch.device("cpu"))


def on_disk(network, folder):
    import accelerate

    return accelerate.disk_offload(network, folder, execution_device=torch.device("cpu"))


def one_layer_on_disk(network, folder):
    import accelerate

    places = dict.fromkeys(
        ["model.embed_tokens", "lm_head", "model.rotary_emb", "model.norm"], "cpu"
    )
    places |= {"model.layers.0": "cpu", "model.layers.1": "disk"}
    return accelerate.dispatch_model(network, places, main_device="cpu", offload_dir=folder)


def without_weights(network, folder):
    return network.to("meta")


OFFLOADED = [on_processor, on_disk, one_layer_on_disk, without_weights]


@pytest.mark.parametrize("offload", OFFLOADED)
def test_an_offloaded_model_is_refused_with_the_way_to_load_it(offload, folder, story, tmp_path):
    pytest.importorskip("accelerate")
    network, tokenizer = pair_of(folder)
    source = offload(network, tmp_path / "weights"), tokenizer
    for ask in (partial(hs.classify, source, story), partial(hs.weights, source)):
        with pytest.raises(ModelError, match="--device-map"):
            ask()
