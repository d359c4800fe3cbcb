from __future__ import annotations

import pytest
import torch

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import (
    MultiHeadAttention,
    RelativePositions,
    Rotary,
    heads_output,
)
from tests.studies.anatomy.reference.slow import CLOSE, roughen, streams

LAYERS = {
    "plain": lambda: MultiHeadAttention(16, 4),
    "no bias": lambda: MultiHeadAttention(16, 4, bias=False),
    "causal, grouped": lambda: MultiHeadAttention(16, 4, n_kv_heads=2, causal=True),
    "wide heads": lambda: MultiHeadAttention(16, 3, d_head=8),
    "rotary": lambda: MultiHeadAttention(16, 4, rotary=Rotary(2), causal=True),
    "relative": lambda: MultiHeadAttention(16, 4, relative=RelativePositions(4, max_distance=2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_output_is_the_sum_of_the_heads_and_the_bias(name):
    layer = roughen(LAYERS[name]())
    (x,) = streams(5)
    heads = heads_output(layer, x, x, x)
    assert heads.shape == (2, layer.n_heads, 5, 16)
    bias = 0 if layer.W_O.bias is None else layer.W_O.bias
    assert torch.allclose(heads.sum(1) + bias, layer(x, x, x).output, **CLOSE)


def test_a_head_adds_what_is_left_when_all_other_heads_are_cut_from_w_o():
    layer = roughen(MultiHeadAttention(16, 4, causal=True))
    x, y = streams(5, 5)
    mask = torch.rand(2, 1, 5, 5) < 0.7
    heads = heads_output(layer, x, y, y, mask=mask)
    weight = layer.W_O.weight.detach().clone()
    for head in range(4):
        kept = torch.zeros_like(weight)
        kept[:, 4 * head : 4 * head + 4] = weight[:, 4 * head : 4 * head + 4]
        layer.W_O.weight.data = kept
        alone = layer(x, y, y, mask=mask).output - layer.W_O.bias
        assert torch.allclose(heads[:, head], alone, **CLOSE)


def test_heads_with_the_same_weights_add_the_same():
    layer = roughen(MultiHeadAttention(16, 4, causal=True))
    (x,) = streams(5)
    assert not torch.allclose(*heads_output(layer, x, x, x)[:, :2].unbind(1))
    with torch.no_grad():
        for projection in (layer.W_Q, layer.W_K, layer.W_V):
            projection.weight.copy_(projection.weight[:4].repeat(4, 1))
            projection.bias.copy_(projection.bias[:4].repeat(4))
        layer.W_O.weight.copy_(layer.W_O.weight[:, :4].repeat(1, 4))
    heads = heads_output(layer, x, x, x)
    assert bool((heads[:, 0].abs() > 1e-3).any())
    for head in range(1, 4):
        assert torch.allclose(heads[:, head], heads[:, 0], atol=1e-6)


def test_wrong_inputs_are_refused_as_by_the_layer():
    x, narrow = torch.randn(2, 5, 16), torch.randn(2, 5, 12)
    with pytest.raises(ShapeError, match=r"key has shape \(2, 5, 12\).*16"):
        heads_output(MultiHeadAttention(16, 4), x, narrow, narrow)
