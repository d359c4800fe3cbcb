"""A mask of heads, one for all windows or one for each."""

from __future__ import annotations

import pytest
import torch

from headscope.models.intervention import HeadsScaled
from headscope.models.load import load_model
from headscope.models.loss import network_of

LAYERS, HEADS = 2, 4


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
