"""Q, K, V and O: the matrices must give what the model's own code gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM, FalconConfig, GPTBigCodeConfig

from headscope.errors import ModelError
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.layout.projections import attention_modules, projections
from tests.models.tiny import tiny_config

SEEN: list[tuple[torch.Tensor, ...]] = []


def _keep(module, query, key, value, mask, **more):
    SEEN.append((query, key, value))
    heads = query.shape[1] // key.shape[1]
    return value.repeat_interleave(heads, 1).transpose(1, 2).contiguous(), None


AttentionInterface.register("kept_by_a_test", _keep)


def network_of(config):
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config, attn_implementation="kept_by_a_test")
    with torch.no_grad():
        for name, weights in network.named_parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.3)
            elif "bias" in name:
                weights.zero_()
    return network.eval()


def star_coder(*, multi_query: bool) -> GPTBigCodeConfig:
    return GPTBigCodeConfig(
        n_layer=1, n_head=4, n_embd=32, n_positions=16, vocab_size=50, multi_query=multi_query
    )


CONFIGS = {
    "starcoder": star_coder(multi_query=True),
    "starcoder without shared keys": star_coder(multi_query=False),
} | {
    name: tiny_config(name)
    for name in ("gpt2", "opt", "biogpt", "gpt_neox", "phi3", "llama", "stablelm")
}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_matrices_give_the_queries_keys_and_values_that_the_model_computes(name):
    """Rotary positions leave the first token as it is."""
    config = CONFIGS[name]
    network, stated = network_of(config), read_dimensions("m", config)
    layer, inputs = attention_modules(network)[0], []
    layer.register_forward_pre_hook(
        lambda module, args, more: inputs.append(args[0] if args else more["hidden_states"]),
        with_kwargs=True,
    )
    SEEN.clear()
    with torch.no_grad():
        network.base_model(torch.tensor([[7]]), use_cache=False)
    scales = (8**-0.5 if name == "opt" else 1, 1, 1)  # OPT scales its queries before
    for matrix, theirs, scale in zip(projections(layer, stated)[:3], SEEN[0], scales, strict=True):
        ours = (inputs[0] @ matrix.reshape(-1, 32).T).view(1, 1, -1, 8).transpose(1, 2)
        assert torch.allclose(ours * scale, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "key_heads"),
    [
        ({"multi_query": True}, 1),
        ({"multi_query": False}, 4),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2),
    ],
)
def test_falcons_one_matrix_is_split_as_falcon_splits_what_comes_out(fields, key_heads):
    config = FalconConfig(
        num_hidden_layers=1, num_attention_heads=4, hidden_size=32, vocab_size=50, **fields
    )
    network = AutoModelForCausalLM.from_config(config)
    layer = network.transformer.h[0].self_attention
    x = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        own = layer._split_heads(layer.query_key_value(x))
    stated = read_dimensions("m", config)
    assert stated.key_value_heads == key_heads
    query, key, value, out = projections(layer, stated)
    assert torch.allclose(x @ query.reshape(32, 32).T, own[0].reshape(1, 5, 32), atol=1e-5)
    for matrix, theirs in ((key, own[1]), (value, own[2])):
        ours = (x @ matrix.reshape(-1, 32).T).view(1, 5, key_heads, 8)
        if theirs.shape[2] != key_heads:  # Falcon copies each key for its group of queries
            ours = ours.repeat_interleave(4 // key_heads, 2)
        assert torch.allclose(ours, theirs.reshape(ours.shape), atol=1e-5)
    assert out.shape == (32, 32)


def test_a_matrix_of_another_shape_than_heads_times_width_is_refused():
    config = tiny_config("llama")
    layer, stated = attention_modules(network_of(config))[0], read_dimensions("m", config)
    assert len(projections(layer, stated)) == 4
    with pytest.raises(ModelError, match=r"its K matrix has the shape \(16, 32\), but .* 4 heads"):
        projections(layer, replace(stated, key_value_heads=4))
    with pytest.raises(ModelError, match=r"its O matrix has the shape \(32, 32\), but .* 2 heads"):
        projections(layer, replace(stated, heads=2))
