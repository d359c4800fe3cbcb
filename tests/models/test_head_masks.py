"""A mask of heads: against z zeroed by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.models.intervention import HeadsScaled
from headscope.models.layout.projections import attention_modules
from headscope.models.load import load_model
from headscope.models.loss import network_of

LAYERS, HEADS, WIDTH = 2, 4, 8


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


@pytest.fixture(scope="module")
def tokens():
    return torch.randint(1, 90, (3, 20), generator=torch.Generator().manual_seed(0))


def masked(model, mask):
    return HeadsScaled.by_row(model, mask).applied(model)


@torch.no_grad()
def logits(network, tokens):
    return network(tokens, use_cache=False).logits


def test_a_mask_of_ones_changes_nothing(model, tokens):
    network = network_of(model)
    before = logits(network, tokens)
    with masked(model, torch.ones(LAYERS, HEADS)):
        assert torch.equal(logits(network, tokens), before)
    with masked(model, torch.full((LAYERS, HEADS), 0.5)):
        assert not torch.allclose(logits(network, tokens), before, atol=1e-2)
    assert torch.equal(logits(network, tokens), before)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (0, 3), (1, 1)])
def test_a_mask_of_zero_equals_z_zeroed_by_hand(model, model_folder, tokens, layer, head):
    """By hand: the rows of W_O that read the head's z are zero, so that nothing of it is read."""
    by_hand = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    attention = attention_modules(by_hand)[layer]
    part = slice(head * WIDTH, (head + 1) * WIDTH)
    with torch.no_grad():
        if hasattr(attention, "c_proj"):
            attention.c_proj.weight[part] = 0  # GPT-2 keeps it transposed
        else:
            (attention.dense if hasattr(attention, "dense") else attention.o_proj).weight[
                :, part
            ] = 0
    mask = torch.ones(LAYERS, HEADS)
    mask[layer, head] = 0
    network = network_of(model)
    with masked(model, mask):
        own = logits(network, tokens)
    assert torch.allclose(own, logits(by_hand, tokens), atol=1e-4)
    assert not torch.allclose(own, logits(network, tokens), atol=1e-2)


def test_each_window_may_have_its_own_mask(model, tokens):
    network = network_of(model)
    mask = torch.ones(LAYERS, 3, HEADS)
    mask[1, 2, 0] = 0
    with masked(model, mask):
        mixed = logits(network, tokens)
    plain = logits(network, tokens)
    assert torch.allclose(mixed[:2], plain[:2], atol=1e-5)
    with masked(model, mask[:, 2]):
        assert torch.allclose(mixed[2], logits(network, tokens)[2], atol=1e-5)
