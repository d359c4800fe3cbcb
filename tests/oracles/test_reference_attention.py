"""Reference attention against transformers' layers and headscope's engines."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from tests.oracles.reference_attention import layer_attention

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 50} | SPECIAL
OTHERS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "vocab_size": 50,
} | SPECIAL


def gpt_neox(turned: float = 0.25, base: float = 10_000.0, **changes):
    rope = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": turned}
    return GPTNeoXConfig(**OTHERS, rope_parameters=rope, **changes)


def llama(base: float = 10_000.0, **changes):
    rope = {"rope_type": "default", "rope_theta": base}
    return LlamaConfig(**OTHERS, rope_parameters=rope, **changes)


CONFIGS = {
    "gpt2": lambda: GPT2Config(**GPT2),
    "gpt2, unscaled": lambda: GPT2Config(**GPT2, scale_attn_weights=False),
    "gpt2, scaled by layer": lambda: GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True),
    "gpt_neox, a quarter turned": gpt_neox,
    "gpt_neox, all turned": lambda: gpt_neox(1.0, base=100.0),
    "gpt_neox, no bias": lambda: gpt_neox(attention_bias=False),
    "llama, grouped": lambda: llama(num_key_value_heads=2),
    "llama, one key/value head": lambda: llama(num_key_value_heads=1, base=100.0),
    "llama, one to one": llama,
    "llama, biased": lambda: llama(num_key_value_heads=2, attention_bias=True),
    "llama, wide heads": lambda: llama(num_key_value_heads=2, head_dim=12),
}
TOKENS = torch.tensor([[7, 3, 9, 9, 1, 4, 30, 12, 3], [5, 5, 8, 2, 40, 41, 2, 0, 7]])
ATTENTION = ("attn", "attention", "self_attn")


def layers_of(network: nn.Module) -> list[nn.Module]:
    return [m for name, m in network.named_modules() if name.split(".")[-1] in ATTENTION]


@torch.no_grad()
def inputs_and_outputs(network: nn.Module, tokens: torch.Tensor) -> list:
    """Input and output of each attention layer as the whole model runs."""
    seen = []

    def keep(module, args, kwargs, output):
        seen.append(((args or (kwargs["hidden_states"],))[0], output))

    hooks = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers_of(network)]
    network(tokens)
    for hook in hooks:
        hook.remove()
    return seen


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_the_reference_gives_the_output_and_pattern_of_transformers(name):
    torch.manual_seed(0)
    network = AutoModel.from_config(CONFIGS[name](), attn_implementation="eager").eval()
    for key, parameter in network.named_parameters():
        # norms near 1: in a narrow stream attention would be even
        parameter.normal_(float(parameter.ndim == 1 and key.endswith("weight")), 0.4)
    seen = inputs_and_outputs(network, TOKENS)
    for layer, (x, (output, pattern)) in zip(layers_of(network), seen, strict=True):
        ours = layer_attention(layer, network.config, x)
        assert torch.allclose(ours.output, output, **CLOSE)
        assert torch.allclose(ours.pattern, pattern, **CLOSE)
        even = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
        assert (pattern - even).abs().sum(-1).mean() > 0.3


@pytest.mark.parametrize("engine", ["fused", "lens"])
@torch.no_grad()
def test_engines_give_the_patterns_of_the_reference(model_folder, engine):
    tokens = torch.arange(1, 10)[None]
    patterns = {}
    model = load_model(str(model_folder), engine=engine)
    stream_patterns(model.engine, tokens, lambda layer, rows: patterns.update({layer: rows}))
    network = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    seen = inputs_and_outputs(network, tokens)
    for index, (layer, (x, _)) in enumerate(zip(layers_of(network), seen, strict=True)):
        expected = layer_attention(layer, network.config, x).pattern
        assert torch.allclose(patterns[index], expected, **CLOSE)
