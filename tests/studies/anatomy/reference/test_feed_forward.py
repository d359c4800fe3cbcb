from __future__ import annotations

import math

import pytest
import torch

from headscope.errors import ChoiceError, ShapeError
from headscope.studies.anatomy.reference import FeedForward
from headscope.studies.anatomy.reference.feed_forward import ACTIVATIONS
from tests.studies.anatomy.reference.slow import CLOSE, roughen

CURVES = {
    "gelu": lambda a: a * (1 + math.erf(a / math.sqrt(2))) / 2,
    "gelu_new": lambda a: a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) / 2,
    "relu": lambda a: max(a, 0.0),
}
TIGHT = {"atol": 1e-12, "rtol": 0}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_its_formula(name):
    points = torch.linspace(-6, 6, 241, dtype=torch.float64)
    curve = CURVES[name if name in CURVES else "gelu_new"]
    expected = torch.tensor([curve(a) for a in points.tolist()], dtype=torch.float64)
    assert torch.allclose(ACTIVATIONS[name](points), expected, **TIGHT)


def test_the_two_gelus_differ_by_less_than_said_but_differ():
    points = torch.linspace(-10, 10, 20_001, dtype=torch.float64)
    apart = (ACTIVATIONS["gelu"](points) - ACTIVATIONS["gelu_new"](points)).abs().max()
    assert 1e-4 < apart < 1e-3


@pytest.mark.parametrize("bias", [False, True])
def test_every_position_goes_through_the_formula_by_itself(bias):
    block = roughen(FeedForward(6, 10, activation="gelu", bias=bias))
    x = torch.randn(2, 3, 6)
    zero = torch.zeros(10)
    for b in range(2):
        for p in range(3):
            hidden = block.W_in.weight @ x[b, p] + (block.W_in.bias if bias else zero)
            active = torch.tensor([CURVES["gelu"](a) for a in hidden.tolist()])
            expected = block.W_out.weight @ active + (block.W_out.bias if bias else zero[:6])
            assert torch.allclose(block(x)[b, p], expected, **CLOSE)


def test_an_unknown_activation_is_refused_with_the_choices():
    with pytest.raises(
        ChoiceError, match=r"no activation named 'swish'; choose from: gelu, .*relu"
    ):
        FeedForward(6, 10, activation="swish")


@pytest.mark.parametrize("shape", [(2, 3, 5), (6, 2)])
def test_another_width_is_refused_with_both_numbers(shape):
    with pytest.raises(ShapeError) as error:
        FeedForward(6, 10)(torch.randn(shape))
    assert f"{shape}; its last axis should be 6" in str(error.value)
