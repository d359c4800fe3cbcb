"""Weights that are read past the module's own forward: adapters, parametrisations, hooks."""

from __future__ import annotations

import copy
import warnings

import pandas as pd
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.pytorch_utils import Conv1D

import headscope as hs
from headscope.causal.direct_paths import direct_paths
from headscope.errors import ModelError
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import open_model
from headscope.models.null_model import null_model
from tests.helpers.models import save_model

TOKENS = torch.arange(5, 29)[None]
PLACES = {
    "gpt2": ["c_attn", "attn.c_proj"],
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "lm_head"],
}
RANK = 4


class Lora(nn.Module):
    """As of peft: a base layer, two factors, and a `weight` that is the base layer's alone."""

    def __init__(self, base: nn.Module):
        super().__init__()
        inside, outside = base.weight.shape if isinstance(base, Conv1D) else base.weight.T.shape
        self.base_layer = base
        self.down = nn.Parameter(torch.randn(inside, RANK) * 0.3)
        self.up = nn.Parameter(torch.randn(RANK, outside) * 0.3)

    @property
    def weight(self):
        return self.base_layer.weight

    def forward(self, x):
        return self.base_layer(x) + x @ self.down @ self.up


class Doubled(nn.Module):
    """A wrapper that shows no weight."""

    def __init__(self, base: nn.Module):
        super().__init__()
        self.inside = base

    def forward(self, x):
        return 2 * self.inside(x)


class Rounded(Doubled):
    """No matrix computes this."""

    def forward(self, x):
        return self.inside(x).tanh()


def with_lora(linear):
    wrapped = Lora(linear)
    product = wrapped.down @ wrapped.up
    stored = linear.weight + (product if isinstance(linear, Conv1D) else product.T)
    return wrapped, stored, linear.bias


def doubled(linear):
    return Doubled(linear), 2 * linear.weight, twice(linear.bias)


def with_hook(linear):
    stored, bias = 2 * linear.weight, twice(linear.bias)
    linear.register_forward_hook(lambda module, inputs, output: 2 * output)
    return linear, stored, bias


def with_weight_norm(linear):
    wrapped = nn.utils.parametrizations.weight_norm(linear)
    return norm_doubled(wrapped, wrapped.parametrizations.weight.original0)


def with_older_weight_norm(linear):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        wrapped = nn.utils.weight_norm(linear)
    return norm_doubled(wrapped, wrapped.weight_g)


def norm_doubled(wrapped, length):
    stored = 2 * wrapped.weight.detach()
    with torch.no_grad():
        length.mul_(2)
    return wrapped, stored, wrapped.bias


def twice(bias):
    return None if bias is None else 2 * bias


WRAPPED = [with_lora, doubled, with_hook, with_weight_norm, with_older_weight_norm]


@pytest.fixture(scope="module")
def folders(tokenizer, tmp_path_factory):
    home = tmp_path_factory.mktemp("plain")
    return {layout: save_model(layout, tokenizer, home / layout) for layout in PLACES}


def pair_of(folder):
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    return network, AutoTokenizer.from_pretrained(folder)


def wrapped_and_plain(folder, layout, wrap):
    """A network with wrapped matrices, and one whose matrices are merged by hand."""
    torch.manual_seed(0)
    wrapped, tokenizer = pair_of(folder)
    plain, _ = pair_of(folder)
    for name, module in list(wrapped.named_modules()):
        if name.endswith(tuple(PLACES[layout])):
            module, weight, bias = wrap(module)
            wrapped.set_submodule(name, module)
            same = plain.get_submodule(name)
            same.weight = nn.Parameter(weight.detach().clone())
            if bias is not None:
                same.bias = nn.Parameter(bias.detach().clone())
    return (wrapped, tokenizer), (plain, tokenizer)


def patterns_of(model):
    patterns = []
    stream_patterns(model.engine, TOKENS, lambda layer, rows: patterns.append(rows.clone()))
    return torch.stack(patterns)


@pytest.mark.parametrize("layout", PLACES)
@pytest.mark.parametrize("wrap", WRAPPED)
@torch.no_grad()
def test_wrapped_matrices_are_read_as_what_their_modules_compute(wrap, layout, folders):
    source, merged = wrapped_and_plain(folders[layout], layout, wrap)
    network = source[0]
    before = copy.deepcopy({name: value.clone() for name, value in network.state_dict().items()})
    kinds = {name: type(module) for name, module in network.named_modules()}
    eager = network(TOKENS, output_attentions=True).attentions
    model, expected = open_model(source), open_model(merged)
    assert model.engine.name == "fused"
    torch.testing.assert_close(patterns_of(model), torch.stack(eager), rtol=0, atol=1e-4)
    matrices = zip(model.engine.matrices(), expected.engine.matrices(), strict=True)
    for matrix, by_hand in matrices:
        torch.testing.assert_close(matrix, by_hand, rtol=0, atol=1e-5)
    paths, by_hand = direct_paths(model), direct_paths(expected)
    directions = by_hand.directions(TOKENS[0])
    torch.testing.assert_close(paths.directions(TOKENS[0]), directions, rtol=0, atol=1e-4)
    through = paths.through_heads(1, directions)
    torch.testing.assert_close(through, by_hand.through_heads(1, directions), rtol=0, atol=1e-3)
    with null_model(model.engine, seed=0):
        changed = (patterns_of(model) - patterns_of(expected)).abs().amax((1, 2, 3, 4))
        assert (changed > 0.01).all()
    torch.testing.assert_close(patterns_of(model), torch.stack(eager), rtol=0, atol=1e-4)
    # the user's model is as it was
    assert {name: type(module) for name, module in network.named_modules()} == kinds
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())


@pytest.mark.parametrize("layout", PLACES)
def test_study_weights_describes_the_merged_matrices(layout, folders):
    source, merged = wrapped_and_plain(folders[layout], layout, with_lora)
    table, by_hand = hs.weights(source).table, hs.weights(merged).table
    base = hs.weights(pair_of(folders[layout])).table
    pd.testing.assert_frame_equal(table, by_hand, atol=1e-3, rtol=0)
    assert (table["ov_copying"] - base["ov_copying"]).abs().max() > 0.1


def test_what_no_matrix_computes_is_refused_by_its_place(folders):
    network, tokenizer = pair_of(folders["llama"])
    attention = network.model.layers[1].self_attn
    attention.v_proj = Rounded(attention.v_proj)
    with pytest.raises(ModelError, match="v_proj"):
        open_model((network, tokenizer))


@pytest.mark.parametrize("layout", PLACES)
def test_a_bridge_around_wrapped_matrices_is_refused(layout, folders):
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    (network, tokenizer), _ = wrapped_and_plain(folders[layout], layout, with_lora)
    architecture = network.config.architectures[0]
    bridge = build_bridge_from_module(
        network, architecture, hf_config=network.config, model_name="lora", tokenizer=tokenizer
    )
    with pytest.raises(ModelError, match="merge_and_unload"):
        open_model(bridge)


def test_a_null_model_whose_patterns_do_not_change_is_refused(folders, monkeypatch):
    model = open_model(pair_of(folders["llama"]))
    elsewhere = [matrix.clone() for matrix in model.engine.matrices()]
    monkeypatch.setattr(model.engine, "matrices", lambda: elsewhere)
    with pytest.raises(ModelError, match="layer 0"), null_model(model.engine, seed=0):
        pass


class PeftModel(nn.Module):
    """The wrapper of peft, as far as it is no model of transformers."""

    def __init__(self, network):
        super().__init__()
        self.base_model = network

    def get_input_embeddings(self):
        return self.base_model.get_input_embeddings()

    def merge_and_unload(self):
        return self.base_model


@pytest.mark.parametrize("alone", [True, False])
def test_the_wrapper_of_peft_is_refused_with_the_call_that_merges_it(alone, folders):
    network, tokenizer = pair_of(folders["llama"])
    wrapper = PeftModel(network)
    with pytest.raises(ModelError, match=r"merge_and_unload\(\)"):
        open_model(wrapper if alone else (wrapper, tokenizer))
    assert open_model((wrapper.merge_and_unload(), tokenizer)).layers


@pytest.mark.parametrize("layout", PLACES)
def test_an_adapter_of_peft_is_merged(layout, folders):
    peft = pytest.importorskip("peft")
    network, tokenizer = pair_of(folders[layout])
    targets = [name.rpartition(".")[2] for name in PLACES[layout]]
    config = peft.LoraConfig(r=RANK, target_modules=targets, init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.inject_adapter_in_model(config, network).eval()
        merged = peft.PeftModel(pair_of(folders[layout])[0], config)
    for name, value in adapted.state_dict().items():
        merged.base_model.model.state_dict()[name].copy_(value)
    expected = open_model((merged.merge_and_unload(), tokenizer))
    model = open_model((adapted, tokenizer))
    torch.testing.assert_close(patterns_of(model), patterns_of(expected), rtol=0, atol=1e-4)
    matrices = zip(model.engine.matrices(), expected.engine.matrices(), strict=True)
    for matrix, by_peft in matrices:
        torch.testing.assert_close(matrix, by_peft, rtol=0, atol=1e-5)
