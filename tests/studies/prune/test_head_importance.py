"""A head's mask: against z zeroed by hand, and its gradient against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.measure.study_windows import text_windows
from headscope.models.intervention import HeadsScaled
from headscope.models.layout.projections import attention_modules
from headscope.models.load import load_model
from headscope.models.loss import loss, network_of
from headscope.studies.prune import head_importance, layer_normalised

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


def test_importance_equals_a_finite_difference(model_folder, story):
    """In double precision, window by window: mean over tokens of |nats(1 + ε) − nats(1 − ε)| / 2ε."""
    model = load_model(str(model_folder))
    network, windows = network_of(model).double(), text_windows(model, story)
    for norm in network.modules():
        if type(norm).__name__ == "LlamaRMSNorm":  # its own forward rounds to single precision
            norm.forward = lambda x, norm=norm: norm.weight * rms(x, norm.variance_epsilon)
    own = head_importance(model, windows)
    step, expected = 1e-5, np.zeros((LAYERS, HEADS))
    for layer in range(LAYERS):
        for head in range(HEADS):
            sides = []
            for sign in (1, -1):
                mask = torch.ones(LAYERS, HEADS, dtype=torch.float64)
                mask[layer, head] += sign * step
                sides.append(loss(model, windows, HeadsScaled.by_row(model, mask)))
            slope = (sides[0].nats - sides[1].nats) / (2 * step)
            expected[layer, head] = np.abs(slope).sum() / sides[0].tokens.sum()
    assert own == pytest.approx(expected, rel=1e-5)
    assert own.min() > 0


def rms(x, epsilon):
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt()


def test_importance_leaves_the_weights_as_they_were(model, story):
    network, windows = network_of(model), text_windows(model, story)
    before = [weight.requires_grad for weight in network.parameters()]
    head_importance(model, windows)
    assert [weight.requires_grad for weight in network.parameters()] == before
    assert all(weight.grad is None for weight in network.parameters())


def test_chunks_of_logits_do_not_change_the_importance(model, story, monkeypatch):
    from headscope.models import loss as module

    windows = text_windows(model, story)
    whole = head_importance(model, windows)
    monkeypatch.setattr(module, "LOGIT_CELLS", 7 * model.vocabulary_size)
    assert head_importance(model, windows) == pytest.approx(whole, rel=1e-4)


def test_importance_is_normalised_by_layer():
    raw = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, 7.0]])
    assert layer_normalised(raw).tolist() == [[0.6, 0.8], [0, 0], [0, 1]]
    assert raw[0].tolist() == [3, 4]
