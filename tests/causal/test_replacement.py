"""Patterns of some heads replaced, in every kind of layout: against transformers' own patterns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from headscope.causal.intervention import Replacement, softmax_over_visible
from headscope.models.engines.attention import overridden
from headscope.models.layout.projections import outputs_by_layer
from headscope.models.load import load_model
from tests.models.every_layout import attention_of, own_network, save_tiny

LAYOUTS = ("gpt2", "llama", "gemma3_text", "gpt_neo", "gpt_oss", "mistral", "deepseek_v3", "bert")
LENGTH = 40
TOKENS = torch.randint(5, 90, (2, LENGTH), generator=torch.Generator().manual_seed(0))
HEADS = [1, 2]


@pytest.fixture(scope="module", params=LAYOUTS)
def case(request, tokenizer, tmp_path_factory):
    """A tiny model, and the patterns that transformers computes by its eager attention."""
    folder = tmp_path_factory.mktemp(request.param)
    save_tiny(request.param, tokenizer, folder)
    own = attention_of(own_network(folder, request.param), TOKENS, request.param)
    return SimpleNamespace(model=load_model(str(folder), engine="fused"), own=own)


def z_of(model, intervention=None) -> dict[int, torch.Tensor]:
    """The input of each layer's W_O, by head."""
    network = model.engine.network
    z: dict[int, torch.Tensor] = {}
    handles = []
    for layer, output in outputs_by_layer(network).items():

        def keep(_, arguments, layer=layer) -> None:
            z[layer] = arguments[0].reshape(*TOKENS.shape, model.heads, -1).clone()

        handles.append(output.register_forward_pre_hook(keep))
    with torch.no_grad():
        if intervention is None:
            network.base_model(TOKENS)
        else:
            with intervention.applied(model):
                network.base_model(TOKENS)
    for handle in handles:
        handle.remove()
    return z


def values_of(model) -> torch.Tensor:
    """The first layer's values by group, as transformers hands them to its attention."""
    values = {}

    def keep(call):
        values.setdefault(call.layer, call.value.clone())
        return call.output()

    with torch.no_grad(), overridden(model.engine.network, keep):
        model.engine.network.base_model(TOKENS)
    return values[0]


def test_a_model_whose_heads_have_their_own_patterns_is_unchanged(case):
    before = z_of(case.model)
    heads = {0: HEADS, 1: range(case.model.heads)}
    own = Replacement(heads, lambda call: case.own[call.layer][:, list(heads[call.layer])])
    after = z_of(case.model, own)
    for layer, z in before.items():
        assert torch.allclose(after[layer], z, atol=2e-3)


def test_replaced_heads_read_their_groups_values_by_the_pattern_and_others_are_unchanged(case):
    before, values = z_of(case.model), values_of(case.model)
    generator = torch.Generator().manual_seed(1)
    pattern = torch.rand(2, len(HEADS), LENGTH, LENGTH, generator=generator)
    after = z_of(case.model, Replacement({0: HEADS}, lambda call: pattern))[0]
    group_size = case.model.heads // values.shape[1]
    for head in range(case.model.heads):
        expected = before[0][:, :, head]
        if head in HEADS:
            group = values[:, head // group_size]
            rows = pattern[:, HEADS.index(head)]
            expected = torch.einsum("wqk,wkv->wqv", rows, group)
        assert torch.allclose(after[:, :, head], expected, atol=1e-4)


def test_no_key_that_a_query_does_not_see_has_a_share():
    visible = torch.tensor([[True, False], [True, True], [False, False]])[None, None]
    logits = torch.tensor([[0.0, 9.0], [0.0, 1.0], [0.0, 0.0]])[None, None]
    pattern = softmax_over_visible(logits, visible)[0, 0]
    e = torch.e
    expected = [[1, 0], [1 / (1 + e), e / (1 + e)], [0, 0]]
    assert torch.allclose(pattern, torch.tensor(expected))
