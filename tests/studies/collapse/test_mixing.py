"""W_O's mixing: the identity put there by hand gives the same loss."""

from __future__ import annotations

import pytest
import torch

from headscope.errors import ModelError
from headscope.models.engines.modules import attention_layers
from headscope.models.load import load_model
from headscope.models.matrices import output_projection
from headscope.studies.collapse.mixing import unmixed
from headscope.studies.collapse.run import collapse


def unmix(model, corpus, **how):
    """The rows of a collapse that put an identity in W_O's place, and the untouched model."""
    table = collapse(model, corpus, mixing=True, **how).table
    return table[table["how"].isin(["untouched", "no W_O"])].reset_index(drop=True)


def test_it_equals_a_model_whose_w_o_is_the_identity(model_folder, keys_file):
    model = load_model(str(model_folder))
    table = unmix(model, keys_file, max_tokens=200)
    assert table["layer"].tolist() == ["", "0", "1", "all"]
    outputs = [output_projection(a) for a in attention_layers(model.engine.network)]
    bias = outputs[1].bias
    if bias is not None:
        torch.nn.init.normal_(bias, std=0.3)
        table = unmix(model, keys_file, max_tokens=200)
    for layers, row in (([1], 2), ([0], 3)):  # the second time both are identities
        for layer in layers:
            outputs[layer].weight.data.copy_(torch.eye(32))
        changed = unmix(model, keys_file, max_tokens=200)
        assert changed["loss"][0] == pytest.approx(table["loss"][row], abs=1e-4)
        assert abs(table["rise"][row]) > 1e-3


def test_without_mixing_no_feature_depends_on_two_heads(gpt2_folder):
    output = output_projection(attention_layers(load_model(str(gpt2_folder)).engine.network)[0])
    z = torch.randn(1, 3, 32, requires_grad=True)
    with unmixed("m", [output]):
        (gradient,) = torch.autograd.grad(output(z)[..., 8:16].sum(), z)
    assert gradient[..., :8].abs().max() == gradient[..., 16:].abs().max() == 0
    assert gradient[..., 8:16].abs().min() > 0


def test_heads_of_another_width_are_refused():
    with (
        unmixed("m", [narrow := torch.nn.Linear(8, 12)]),
        pytest.raises(
            ModelError, match="m: its heads have 8 numbers together and the residual stream 12"
        ),
    ):
        narrow(torch.zeros(1, 2, 8))
