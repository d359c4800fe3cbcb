"""Q, K, V and O: the matrices must give what the model's own code gives."""

from __future__ import annotations

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM

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


CONFIGS = {
    name: tiny_config(name)
    for name in (
        *("gpt2", "opt", "biogpt", "gpt_bigcode", "gpt_neox", "phi3", "llama", "stablelm"),
        "codegen",
    )
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
