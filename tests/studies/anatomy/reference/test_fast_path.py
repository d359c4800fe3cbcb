from __future__ import annotations

import pytest
import torch

from headscope.studies.anatomy.reference import (
    MultiHeadAttention,
    RelativePositions,
    attend,
    attend_fast,
    multi_head,
)
from tests.studies.anatomy.reference.slow import CLOSE, roughen, streams


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [None, 2.0])
def test_the_fast_path_equals_the_slow_path(causal, masked, scale):
    q, k, v = torch.randn(3, 2, 3, 9, 4)
    how = {
        "causal": causal,
        "scale": scale,
        "mask": torch.rand(2, 1, 9, 9) < 0.5 if masked else None,
    }
    fast = attend_fast(q, k, v, **how)
    assert torch.allclose(fast.output, attend(q, k, v, **how).output, **CLOSE)
    assert fast.pattern is None


def test_the_fast_path_takes_two_sequences_and_wider_values():
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 7, 4), torch.randn(2, 7, 9)
    assert torch.allclose(attend_fast(q, k, v).output, attend(q, k, v).output, **CLOSE)


def test_gradients_are_those_of_the_slow_path():
    q, k, v = (x.requires_grad_() for x in torch.randn(3, 2, 9, 4))
    fast = torch.autograd.grad(attend_fast(q, k, v, causal=True).output.square().sum(), [q, k, v])
    slow = torch.autograd.grad(attend(q, k, v, causal=True).output.square().sum(), [q, k, v])
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(fast, slow, strict=True))


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("return_pattern", [False, True])
def test_the_kernel_is_used_when_neither_pattern_nor_distances_are_wanted(
    monkeypatch, relative, return_pattern
):
    calls = []

    def counted(*args, **kwargs):
        calls.append(1)
        return attend_fast(*args, **kwargs)

    monkeypatch.setattr(multi_head, "attend_fast", counted)
    distances = RelativePositions(4, max_distance=3) if relative else None
    layer = MultiHeadAttention(16, 4, relative=distances)
    (x,) = streams(5)
    layer(x, x, x, return_pattern=return_pattern)
    assert bool(calls) == (not relative and not return_pattern)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_layer_gives_one_output_on_both_paths(causal, kv_heads):
    layer = roughen(MultiHeadAttention(16, 4, n_kv_heads=kv_heads, causal=causal))
    (x,) = streams(7)
    mask = torch.rand(2, 1, 7, 7) < 0.8
    slow = layer(x, x, x, mask=mask, return_pattern=True)
    assert torch.allclose(layer(x, x, x, mask=mask).output, slow.output, **CLOSE)
