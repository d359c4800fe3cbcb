"""Another attention for as long as a context lasts, and nothing of it behind."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from transformers import AttentionInterface

from headscope.models.engines import capture
from headscope.models.engines.override import overridden
from headscope.models.load import load_model
from headscope.models.loss import network_of


@pytest.fixture
def networks(gpt2_folder):
    return [network_of(load_model(str(gpt2_folder))) for _ in range(2)]


def logits(network) -> torch.Tensor:
    ids = torch.arange(24)[None] % network.config.vocab_size
    with torch.no_grad():
        return network(ids, use_cache=False).logits


def nothing(call) -> torch.Tensor:
    windows, heads, length, _ = call.query.shape
    return call.query.new_zeros(windows, length, heads, call.value.shape[-1])


def names() -> list[str]:
    return [name for name in AttentionInterface().valid_keys() if name.startswith("headscope-")]


def test_every_layer_is_asked_and_as_ever_is_bit_for_bit_the_models_own(networks):
    network, seen = networks[0], []

    def look(call):
        seen.append((call.layer, call.scale, tuple(call.query.shape)))
        return call.output()

    own = logits(network)
    with overridden(network, look):
        assert torch.equal(logits(network), own)
    width = network.config.n_embd // network.config.n_head
    shape = (1, network.config.n_head, 24, width)
    assert seen == [(layer, width**-0.5, shape) for layer in range(network.config.n_layer)]


def test_two_networks_have_each_their_own_at_once(networks):
    one, two = networks
    own = logits(one)
    with overridden(one, nothing):
        alone = logits(one)
        with overridden(two, lambda call: 2 * call.output()):
            assert torch.equal(logits(one), alone)
            doubled = logits(two)
        assert torch.equal(logits(two), own)
        assert torch.equal(logits(one), alone)
    assert torch.equal(logits(one), own)
    assert not torch.equal(alone, own)
    assert not torch.equal(doubled, own)
    assert not torch.equal(doubled, alone)


def test_what_a_function_holds_is_let_go_and_names_are_used_again(networks):
    network = networks[0]
    own, before = logits(network), None

    class Heavy:
        def __call__(self, call):
            raise RuntimeError("in the middle")

    for _ in range(3):
        heavy = Heavy()
        held = weakref.ref(heavy)
        with pytest.raises(RuntimeError, match="in the middle"), overridden(network, heavy):
            logits(network)
        del heavy
        gc.collect()
        assert held() is None
        before = before or names()
        assert names() == before
    assert torch.equal(logits(network), own)
    for name in names():
        assert AttentionInterface()[name] is capture.attention
