from __future__ import annotations

import math

import pytest
import torch

from headscope.errors import ShapeError
from headscope.studies.anatomy.reference import FeedForward, SwiGLU
from tests.studies.anatomy.reference.slow import CLOSE, roughen


@pytest.mark.parametrize("bias", [False, True])
def test_every_position_goes_through_the_formula_by_itself(bias):
    block = roughen(SwiGLU(6, 10, bias=bias))
    x = torch.randn(2, 3, 6)
    zero = torch.zeros(10)
    for b in range(2):
        for p in range(3):
            gate = block.W_gate.weight @ x[b, p] + (block.W_gate.bias if bias else zero)
            open_ = torch.tensor([a / (1 + math.exp(-a)) for a in gate.tolist()])
            hidden = open_ * (block.W_in.weight @ x[b, p] + (block.W_in.bias if bias else zero))
            expected = block.W_out.weight @ hidden + (block.W_out.bias if bias else zero[:6])
            assert torch.allclose(block(x)[b, p], expected, **CLOSE)


def test_eight_thirds_of_the_width_hold_as_many_weights_as_four_times_without_a_gate():
    gated, plain = SwiGLU(12, 32), FeedForward(12, 48, bias=False)
    count = [sum(p.numel() for p in block.parameters()) for block in (gated, plain)]
    assert count == [8 * 12**2] * 2


def test_a_closed_gate_lets_nothing_through():
    block = roughen(SwiGLU(6, 10))
    x = torch.randn(2, 3, 6)
    assert bool((block(x) != 0).all())
    block.W_gate.weight.data.zero_()
    assert bool((block(x) == 0).all())


@pytest.mark.parametrize("shape", [(2, 3, 5), (6, 2)])
def test_another_width_is_refused_with_both_numbers(shape):
    with pytest.raises(ShapeError) as error:
        SwiGLU(6, 10)(torch.randn(shape))
    assert f"{shape}; its last axis should be 6" in str(error.value)
