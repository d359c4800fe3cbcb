"""Gradients by activations, against those of transformers' own modules."""

from __future__ import annotations

import pytest
import torch

from headscope.causal.gradients import smoothed
from tests.helpers.models import save_model
from tests.models.every_layout import own_network


@pytest.fixture(params=["llama", "gpt_neox"])
def network(request, tokenizer, tmp_path):
    return own_network(save_model(request.param, tokenizer, tmp_path))


def gradient(module: torch.nn.Module, values: torch.Tensor) -> torch.Tensor:
    """Of the sum of a module's outputs, each with a weight of its own."""
    inputs = values.clone().requires_grad_()
    output = module(inputs)
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape)
    (output * weights).sum().backward()
    assert inputs.grad is not None
    return inputs.grad


def test_a_gate_halves_the_gradient_and_an_mlp_without_one_keeps_it(network):
    """The product of a gate and what passes it belongs to each by a half."""
    mlp = network.base_model.layers[0].mlp
    values = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    plain = gradient(mlp, values)
    with smoothed(network):
        found = gradient(mlp, values)
    share = 0.5 if hasattr(mlp, "gate_proj") else 1
    torch.testing.assert_close(found, share * plain)
    torch.testing.assert_close(gradient(mlp, values), plain)


def test_a_norm_is_a_linear_function_whose_scale_is_held(network):
    """A step along the input then changes the output by all of it but its bias."""
    norm = network.base_model.layers[0].input_layernorm
    values = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = norm(values) - (norm.bias if hasattr(norm, "bias") else 0)
    weights = torch.linspace(-1, 1, output.numel()).view(output.shape)
    with smoothed(network):
        found = gradient(norm, values)
    torch.testing.assert_close((found * values).sum(), (output * weights).sum())
    # a norm alone gives no gradient along its input
    assert (gradient(norm, values) * values).sum().abs() < 1e-3
