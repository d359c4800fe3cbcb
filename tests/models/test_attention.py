"""Attention against a plain softmax, with masks, biases, caps and sinks, and replaced."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.causal.loss import network_of
from headscope.errors import ModelError
from headscope.models.engines.attention import (
    AttentionCall,
    attention,
    by_rows,
    capturing,
    overridden,
    softmax_attend,
)
from headscope.models.engines.engine import Entries, QueryRows, Tile
from headscope.models.engines.scores import Scores, ScoreTerms, log_attention, pattern
from headscope.models.load import load_model

LENGTH, SCALE = 150, 0.3
GENERATOR = torch.Generator().manual_seed(0)
CAUSAL = torch.ones(LENGTH, LENGTH).tril().bool()


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def hidden(bias: torch.Tensor, seen: torch.Tensor = CAUSAL) -> torch.Tensor:
    return bias.masked_fill(~seen, -torch.inf)


NEAR = CAUSAL & ~CAUSAL.tril(-20)
KINDS = {
    "plain": ScoreTerms(),
    "window": ScoreTerms(hidden(torch.zeros(1, 1, LENGTH, LENGTH), NEAR)),
    "a bias of each head": ScoreTerms(hidden(drawn(1, 4, LENGTH, LENGTH))),
    "a bias of each window": ScoreTerms(hidden(drawn(2, 1, LENGTH, LENGTH))),
    "sink": ScoreTerms(sink=torch.tensor([-2.0, 0.0, 3.0, 9.0])),
    "sink in a window": ScoreTerms(
        hidden(torch.zeros(1, 1, LENGTH, LENGTH), NEAR), sink=torch.tensor([-2.0, 0, 3, 9])
    ),
    "cap": ScoreTerms(cap=1.5),
    "cap in a window": ScoreTerms(hidden(torch.zeros(1, 1, LENGTH, LENGTH), NEAR), cap=1.5),
}


def by_hand(query, key, value, beside):
    """Head by head, with the sink as one more column."""
    patterns = []
    for head in range(query.shape[1]):
        scores = query[:, head] @ key[:, head // 2].transpose(-1, -2) * SCALE
        if beside.cap is not None:
            scores = beside.cap * torch.tanh(scores / beside.cap)
        bias = hidden(torch.zeros(1, 1, LENGTH, LENGTH)) if beside.bias is None else beside.bias
        scores = scores + bias[:, head if bias.shape[1] > 1 else 0]
        if beside.sink is not None:
            column = beside.sink[head].expand(*scores.shape[:2], 1)
            patterns.append(torch.cat([scores, column], -1).softmax(-1)[..., :-1])
        else:
            patterns.append(scores.softmax(-1))
    whole = torch.stack(patterns, 1)
    return whole, whole @ value.repeat_interleave(2, 1)


@pytest.mark.parametrize("width", [8, 5, 11])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_every_look_are_those_of_a_plain_softmax(kind, width):
    beside = KINDS[kind]
    query, key, value = drawn(2, 4, LENGTH, 8), drawn(2, 2, LENGTH, 8), drawn(2, 2, LENGTH, width)
    own, expected = by_hand(query, key, value, beside)
    output, normaliser = softmax_attend(query, key, value, SCALE, beside)
    assert torch.allclose(output, expected, atol=1e-5)
    slow, sums = by_rows(query, key, value, SCALE, beside)
    assert torch.allclose(slow, expected, atol=1e-5)
    assert torch.allclose(sums, normaliser, atol=1e-5)
    assert torch.allclose(pattern(query, key, SCALE, beside), own, atol=1e-6)
    scores = Scores(query, key, SCALE, normaliser, beside)

    def seen(look):
        return log_attention(scores, look).exp()

    queries, keys = np.array([3, 70, 149, 149]), np.array([5, 66, 149, 0])
    assert torch.allclose(seen(Tile(slice(0, 2), slice(0, LENGTH))), own, atol=1e-5)
    tile = seen(Tile(slice(1, 2), slice(30, 60)))
    assert torch.allclose(tile, own[1:2, :, 30:60, :60], atol=1e-5)
    picked = seen(QueryRows(1, np.array([2, 70, 148])))
    assert torch.allclose(picked, own[1:2, :, [2, 70, 148], :149], atol=1e-5)
    # a cell with a later key is never asked for, but in a bias it is one that is not seen
    use = slice(1, None) if beside.bias is None else slice(None)
    cells = seen(Entries(1, queries[use], keys[use]))
    assert torch.allclose(cells, own[1][:, queries[use], keys[use]].T, atol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "window", "sink", "cap in a window"])
def test_gradients_are_those_of_a_plain_softmax(kind):
    beside, found = KINDS[kind], []
    tensors = drawn(2, 4, LENGTH, 8), drawn(2, 2, LENGTH, 8), drawn(2, 2, LENGTH, 8)
    weights = drawn(2, 4, LENGTH, 8)
    for way in (lambda *t: softmax_attend(*t, SCALE, beside)[0], lambda *t: by_hand(*t, beside)[1]):
        given = [each.clone().requires_grad_() for each in tensors]
        (way(*given) * weights).sum().backward()
        found.append([each.grad for each in given])
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_log_sum_exps_of_half_precision_are_in_single_precision():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(2, 3, 40, 16, generator=generator).to(torch.bfloat16) for _ in range(3)
    )
    _, normaliser = softmax_attend(query, key, value, 0.25)
    assert normaliser.dtype == torch.float32
    scores = query.double() @ key.double().transpose(-1, -2) * 0.25
    scores = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    assert torch.allclose(normaliser.double(), scores.logsumexp(-1), atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sliding_window": 8}, "sliding_window"),
        ({"head_mask": torch.ones(1)}, "head_mask"),
        ({"block_indices": torch.ones(1, 9, 2)}, "block_indices"),
    ],
)
def test_other_kinds_of_attention_are_refused_by_name(options, message):
    x = torch.randn(1, 1, 9, 4)
    with pytest.raises(ModelError, match=message):
        attention(torch.nn.Identity(), x, x, x, None, **options)
    wide = attention(torch.nn.Identity(), x, x, x, None, sliding_window=9)[0]
    assert wide.shape == (1, 9, 1, 4)


LOWEST = torch.finfo(torch.float32).min
PADDED = CAUSAL[:9, :9].expand(2, 1, 9, 9).clone()
PADDED[1, :, :, 7:] = False


@pytest.mark.parametrize(
    ("mask", "is_causal", "seen"),
    [
        (None, True, CAUSAL[None, None, :9, :9]),
        (None, False, torch.ones(1, 1, 9, 9, dtype=torch.bool)),
        (PADDED, True, PADDED),
        (PADDED[:1].expand(2, -1, -1, -1), True, PADDED[:1]),
        (torch.zeros(2, 1, 9, 9).masked_fill(~PADDED, LOWEST), True, PADDED),
        (torch.zeros(2, 1, 9, 9).masked_fill(~PADDED, -torch.inf), True, PADDED),
        (
            drawn(1, 4, 9, 9).masked_fill(~CAUSAL[:9, :9], LOWEST),
            True,
            CAUSAL[:9, :9].expand(1, 4, 9, 9),
        ),
    ],
)
def test_a_mask_hides_what_it_hides_in_a_plain_softmax(mask, is_causal, seen):
    """Masks are of booleans, or numbers to add; one that all windows share is kept once."""
    query, key, value = (drawn(2, 4, 9, 8) for _ in range(3))
    module = torch.nn.Identity()
    module.is_causal = is_causal
    call = AttentionCall(module, query, key, value, mask, SCALE, {})
    assert torch.equal(call.visible, seen)
    added = torch.zeros(1) if mask is None or mask.dtype == torch.bool else mask.clamp_min(LOWEST)
    scores = query @ key.transpose(-1, -2) * SCALE + added
    expected = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    assert torch.allclose(call.pattern(), expected, atol=1e-6)
    assert torch.allclose(call.output(), (expected @ value).transpose(1, 2), atol=1e-6)


@pytest.fixture
def networks(gpt2_folder):
    return [network_of(load_model(str(gpt2_folder))) for _ in range(2)]


def logits(network) -> torch.Tensor:
    ids = torch.arange(24)[None] % network.config.vocab_size
    with torch.no_grad():
        return network(ids, use_cache=False).logits


def test_a_function_is_called_for_every_layer_and_its_own_output_changes_no_bit(networks):
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


def test_two_networks_are_overridden_at_once_and_let_go_after_an_error(networks):
    one, two = networks
    own = logits(one)
    with overridden(one, lambda call: 3 * call.output()):
        tripled = logits(one)
        with overridden(two, lambda call: 2 * call.output()):
            assert torch.equal(logits(one), tripled)
            assert not torch.equal(logits(two), own)
        with overridden(one, lambda call: call.output()):
            assert torch.equal(logits(one), own)
        assert torch.equal(logits(two), own)
        assert not torch.equal(logits(one), own)
    with pytest.raises(ZeroDivisionError), overridden(one, lambda call: 1 // 0):
        logits(one)
    assert torch.equal(logits(one), own)


def test_a_users_model_keeps_no_attribute_of_a_hook(gpt2_folder):
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    before = [set(vars(module)) for module in network.modules()]
    with overridden(network, lambda call: call.output()), capturing(network, lambda *scores: None):
        assert [set(vars(module)) for module in network.modules()] != before
    assert [set(vars(module)) for module in network.modules()] == before
