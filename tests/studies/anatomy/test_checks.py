"""Checks on loaded models: that they pass, and above all that they can fail."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import ModelError
from headscope.models.layout.modules import attention_modules
from headscope.models.load import load_model
from headscope.studies.anatomy import checks, parameter_count
from headscope.studies.anatomy.anatomy_result import AnatomyCheck
from headscope.studies.anatomy.checks import (
    CHECKS,
    RECOMPUTED,
    TOLERANCE,
    Layer,
    _catch,
    check_layers,
    check_reference,
)
from headscope.studies.anatomy.parameter_count import find_source
from tests.helpers.models import save_model

SUM = "attention output = Σ_h z_h W_O^h + b_O"


def of_the_sum(checks) -> list[AnatomyCheck]:
    return [check for check in checks if check.name == SUM]


def test_every_layout_adds_up_its_heads(model_folder):
    anatomy = hs.anatomy(str(model_folder), check=True)
    rows = of_the_sum(anatomy.checks)
    assert [row.layer for row in rows] == [0, 1]
    assert all(row.difference <= 1e-5 == row.tolerance for row in rows)
    assert anatomy.holds


def test_mini_adds_up_its_heads():
    model = load_model("mini", engine="lens")
    rows = of_the_sum(check_layers(model))
    assert [row.layer for row in rows] == list(range(model.layers))
    assert hs.anatomy("mini", check=True).holds


def test_a_layer_that_uses_other_weights_than_it_shows_fails_alone(model_folder):
    model = load_model(str(model_folder), engine="lens")
    projection = model.engine.bridge.blocks[1].attn.o.original_component
    with torch.no_grad():
        other = projection.weight.clone()
        other[3, 5] += 0.1

    def with_another_weight(module, inputs, output):
        return torch.func.functional_call(module, {"weight": other}, inputs)

    handle = projection.register_forward_hook(_once(with_another_weight))
    first, second = of_the_sum(check_layers(model))
    handle.remove()
    assert first.holds
    assert not second.holds
    assert second.difference > 100 * TOLERANCE
    assert all(check.holds for check in check_layers(model))


def _once(hook):
    """A forward hook that may run its own module without being asked again."""
    inside = []

    def guarded(*arguments):
        if inside:
            return None
        inside.append(True)
        try:
            return hook(*arguments)
        finally:
            inside.clear()

    return guarded


def test_what_is_caught_is_what_the_plain_model_computes(model_folder, monkeypatch):
    """Without TransformerLens: the input of the output projection, and what it gives."""
    tokens = torch.arange(2 * 9).reshape(2, 9)
    monkeypatch.setattr(checks, "_random_tokens", lambda model: tokens)
    caught = _catch(load_model(str(model_folder), engine="lens"))
    plain = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    names = (".attn.c_proj", ".attention.dense", ".self_attn.o_proj")
    projections = [m for n, m in plain.named_modules() if n.endswith(names)]
    seen = []
    for module in projections:
        module.register_forward_hook(lambda _, ins, out: seen.append((ins[0], out)))
    with torch.no_grad():
        plain(tokens)
    for layer, (z, output) in zip(caught, seen, strict=True):
        torch.testing.assert_close(layer.z.flatten(2), z, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(layer.output, output, rtol=1e-4, atol=1e-4)


def test_heads_that_are_wider_than_their_share_of_the_model_add_up(tokenizer, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    save_model("llama", tokenizer, tmp_path)
    config = LlamaConfig.from_pretrained(tmp_path, head_dim=24)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    anatomy = hs.anatomy(str(tmp_path), check=True)
    assert anatomy.dimensions.d_head == 24
    assert anatomy.holds


def by_hand(z: torch.Tensor, w_o: torch.Tensor, b_o: torch.Tensor) -> torch.Tensor:
    """The sum over heads as a slow loop."""
    output = torch.zeros(*z.shape[:2], w_o.shape[2])
    for batch in range(z.shape[0]):
        for position in range(z.shape[1]):
            output[batch, position] = b_o
            for head in range(z.shape[2]):
                output[batch, position] += z[batch, position, head] @ w_o[head]
    return output


def test_the_difference_is_relative_to_the_largest_entry():
    torch.manual_seed(0)
    z, w_o, b_o = torch.randn(2, 3, 4, 5), torch.randn(4, 5, 6), torch.randn(6)
    output = by_hand(z, w_o, b_o)
    measure = CHECKS[SUM]
    assert measure(Layer(z, output, w_o, b_o)) < 1e-6
    off = output.clone()
    off[1, 2, 3] += 0.5 * output.abs().max()
    expected = 0.5 * output.abs().max() / off.abs().max()
    assert measure(Layer(z, off, w_o, b_o)) == pytest.approx(float(expected), rel=1e-4)
    # the same at another size
    assert measure(Layer(1e3 * z, 1e3 * off, w_o, 1e3 * b_o)) == pytest.approx(
        float(expected), rel=1e-4
    )


def test_nothing_that_is_no_number_holds():
    zeros = Layer(
        torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1), torch.ones(1, 1, 1), torch.zeros(1)
    )
    measure = CHECKS[SUM]
    assert measure(zeros) == 0
    lost = Layer(zeros.z, torch.ones(1, 1, 1), zeros.w_o, torch.full((1,), torch.nan))
    assert math.isnan(measure(lost))
    assert not AnatomyCheck("x", 0, measure(lost), TOLERANCE).holds
    extra = Layer(zeros.z, zeros.output, zeros.w_o, torch.ones(1))
    assert measure(extra) == math.inf
    assert not AnatomyCheck("x", 0, math.inf, TOLERANCE).holds


def test_a_formula_that_disagrees_fails_its_check(gpt2_folder, monkeypatch):
    found = find_source(str(gpt2_folder))
    more = replace(found, shapes={**found.shapes, "more": (7,)})
    monkeypatch.setattr(parameter_count, "find_source", lambda *_, **__: more)
    anatomy = hs.anatomy(str(gpt2_folder), check=True)
    failed = [check for check in anatomy.checks if not check.holds]
    assert [(check.name, check.difference) for check in failed] == [
        ("parameters as counted = by formula", 7)
    ]


@pytest.mark.parametrize("name", ["gpt-2-s", "config.json"])
def test_a_model_without_weights_is_not_checked(gpt2_folder, name):
    target = name if name == "gpt-2-s" else str(gpt2_folder / name)
    with pytest.raises(hs.HeadscopeError, match=r"there are no weights here; give mini, a folder"):
        hs.anatomy(target, check=True)


def test_every_layer_is_recomputed_by_hand(model_folder):
    checks = check_reference(load_model(str(model_folder)))
    assert [(check.name, check.layer) for check in checks] == [(RECOMPUTED, 0), (RECOMPUTED, 1)]
    assert all(check.holds and check.difference > 0 for check in checks)
    names = {check.name for check in hs.anatomy(str(model_folder), check=True).checks}
    assert {SUM, RECOMPUTED} <= names


def test_a_layer_that_computes_something_else_is_not_recomputed(model_folder):
    model = load_model(str(model_folder))
    layer = attention_modules(model.engine.network)[1]
    layer.register_forward_hook(lambda module, inputs, output: (1.001 * output[0], *output[1:]))
    first, second = check_reference(model)
    assert first.holds
    assert not second.holds


def test_only_what_the_fused_engine_runs_is_recomputed(gpt2_folder):
    with pytest.raises(ModelError, match="recomputes what the fused engine runs"):
        check_reference(load_model(str(gpt2_folder), engine="lens"))
    with pytest.raises(ModelError, match="lens engine"):
        check_layers(load_model(str(gpt2_folder)))
