"""Our modules against Hugging Face's layers, inside whole models with random weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    GPT2Config,
    GPT2Model,
    GPTNeoXConfig,
    GPTNeoXModel,
    LlamaConfig,
    LlamaModel,
)

from headscope.errors import ChoiceError, ModelError, ShapeError
from headscope.studies.anatomy.reference import (
    SwiGLU,
    attention_like,
    feed_forward_like,
    heads_output,
)
from tests.studies.anatomy.reference.slow import CLOSE, roughen

GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 50}
OTHERS = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48,
    "max_position_embeddings": 32, "vocab_size": 50,
}  # fmt: skip
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0}


def gpt2(**changes):
    return GPT2Config(**GPT2, **SPECIAL, **changes)


def gpt_neox(turned=0.25, base=10_000.0, **changes):
    rope = {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": turned}
    return GPTNeoXConfig(**OTHERS, **SPECIAL, **{"rope_parameters": rope, **changes})


def llama(base=10_000.0, **changes):
    rope = {"rope_type": "default", "rope_theta": base}
    return LlamaConfig(**OTHERS, **SPECIAL, **{"rope_parameters": rope, **changes})


CONFIGS = {
    "gpt2": lambda: gpt2(),
    "gpt2, exact gelu, narrow": lambda: gpt2(activation_function="gelu", n_inner=40),
    "gpt2, unscaled": lambda: gpt2(scale_attn_weights=False),
    "gpt2, scaled by layer": lambda: gpt2(scale_attn_by_inverse_layer_idx=True),
    "gpt2, scores in float32": lambda: gpt2(reorder_and_upcast_attn=True),
    "gpt_neox, a quarter turned": lambda: gpt_neox(),
    "gpt_neox, half turned": lambda: gpt_neox(0.5, base=100.0),
    "gpt_neox, all turned": lambda: gpt_neox(1.0),
    "gpt_neox, no bias": lambda: gpt_neox(attention_bias=False),
    "gpt_neox, gelu by tanh": lambda: gpt_neox(hidden_act="gelu_fast"),
    "llama, grouped": lambda: llama(num_key_value_heads=2),
    "llama, one key/value head": lambda: llama(num_key_value_heads=1, base=100.0),
    "llama, one to one": lambda: llama(),
    "llama, biased": lambda: llama(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama, wide heads": lambda: llama(num_key_value_heads=2, head_dim=12),
}
TOKENS = torch.tensor([[7, 3, 9, 9, 1, 4, 30, 12, 3], [5, 5, 8, 2, 40, 41, 2, 0, 7]])
ATTENTION, FEED_FORWARD = ("attn", "attention", "self_attn"), ("mlp",)


def model_of(config):
    model = roughen(AutoModel.from_config(config, attn_implementation="eager"))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and name.endswith("weight"):
            # layer norms around 1: a narrow stream would be attended to evenly
            parameter.data += 1
    return model


def layers(model: nn.Module, names: tuple[str, ...]) -> list[nn.Module]:
    return [module for name, module in model.named_modules() if name.split(".")[-1] in names]


@torch.no_grad()
def seen_in(model: nn.Module, watched: list[nn.Module], tokens: torch.Tensor = TOKENS) -> list:
    """`(input, output)` of each layer while the whole model runs."""
    seen = {}

    def keep(module, args, kwargs, output):
        seen[module] = (args[0] if args else kwargs["hidden_states"], output)

    hooks = [module.register_forward_hook(keep, with_kwargs=True) for module in watched]
    model(tokens)
    for hook in hooks:
        hook.remove()
    return [seen[module] for module in watched]


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_attention_gives_the_layer_s_output_and_pattern(name):
    model = model_of(CONFIGS[name]())
    theirs = layers(model, ATTENTION)
    assert len(theirs) == 2
    for layer, (x, (expected, expected_pattern)) in zip(
        theirs, seen_in(model, theirs), strict=True
    ):
        ours = attention_like(layer, model.config)
        out, pattern = ours(x, x, x, return_pattern=True)
        assert torch.allclose(out, expected, **CLOSE)
        assert torch.allclose(pattern, expected_pattern, **CLOSE)
        assert torch.allclose(ours(x, x, x).output, expected, **CLOSE)
        bias = 0 if ours.W_O.bias is None else ours.W_O.bias
        assert torch.allclose(heads_output(ours, x, x, x).sum(1) + bias, expected, **CLOSE)
        # these layers attend unevenly: what a uniform head gives would not pass
        uniform = torch.ones(9, 9).tril() / torch.arange(1, 10)[:, None]
        assert (expected_pattern - uniform).abs().sum(-1).mean() > 0.5


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_a_feed_forward_block_gives_the_block_s_output(name):
    model = model_of(CONFIGS[name]())
    theirs = layers(model, FEED_FORWARD)
    assert len(theirs) == 2
    for block, (x, expected) in zip(theirs, seen_in(model, theirs), strict=True):
        ours = feed_forward_like(block, model.config)
        assert isinstance(ours, SwiGLU) == name.startswith("llama")
        assert torch.allclose(ours(x), expected, **CLOSE)


@torch.no_grad()
def test_cross_attention_gives_the_layer_s_output_and_pattern():
    model = model_of(gpt2(add_cross_attention=True))
    x, encoded = torch.randn(2, 4, 32), torch.randn(2, 7, 32)
    for layer in layers(model, ("crossattention",)):
        expected, expected_pattern = layer(x, encoder_hidden_states=encoded)
        ours = attention_like(layer, model.config)
        out, pattern = ours(x, encoded, encoded, return_pattern=True)
        assert expected_pattern.shape == (2, 4, 4, 7)
        assert torch.allclose(out, expected, **CLOSE)
        assert torch.allclose(pattern, expected_pattern, **CLOSE)


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox, half turned", "llama, biased"])
def test_ours_is_a_copy_with_as_many_weights(name):
    model = model_of(CONFIGS[name]())
    for names, like in ((ATTENTION, attention_like), (FEED_FORWARD, feed_forward_like)):
        theirs = layers(model, names)[0]
        ours = like(theirs, model.config)
        before = [p.clone() for p in theirs.parameters()]
        assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in before)
        with torch.no_grad():
            for parameter in ours.parameters():
                parameter.zero_()
        assert all(torch.equal(a, b) for a, b in zip(before, theirs.parameters(), strict=True))


@pytest.mark.parametrize("name", ["gpt2", "gpt_neox, half turned", "llama, grouped"])
def test_ours_has_the_type_of_theirs(name):
    model = model_of(CONFIGS[name]()).double()
    x = torch.randn(1, 3, 32, dtype=torch.float64)
    ours = attention_like(layers(model, ATTENTION)[0], model.config)
    assert ours(x, x, x).output.dtype == torch.float64
    assert feed_forward_like(layers(model, FEED_FORWARD)[0], model.config)(x).dtype == torch.float64


def test_other_classes_are_refused_by_name_with_the_known_ones():
    config = gpt2()

    class GPT2AttentionWithATwist(nn.Module):
        pass

    with pytest.raises(ModelError, match=r"GPT2AttentionWithATwist is no attention .*LlamaAtt"):
        attention_like(GPT2AttentionWithATwist(), config)
    with pytest.raises(ModelError, match=r"Linear is no feed-forward .*GPT2MLP, GPTNeoXMLP, Llama"):
        feed_forward_like(nn.Linear(2, 2), config)
    attention = GPT2Model(config).h[0].attn
    with pytest.raises(ModelError, match="GPT2Attention is no feed-forward"):
        feed_forward_like(attention, config)


@pytest.mark.parametrize(("make", "cls"), [(gpt_neox, GPTNeoXModel), (llama, LlamaModel)])
def test_stretched_rotary_positions_are_refused(make, cls):
    rope = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
    model = cls(make(rope_parameters=rope))
    with pytest.raises(ModelError, match="rotary positions of type 'linear'"):
        attention_like(layers(model, ATTENTION)[0], model.config)


def test_activations_that_are_not_written_out_are_refused():
    config = llama(hidden_act="gelu")
    with pytest.raises(ModelError, match="gated by silu, but this block by 'gelu'"):
        feed_forward_like(LlamaModel(config).layers[0].mlp, config)
    config = gpt2(activation_function="mish")
    with pytest.raises(ChoiceError, match="no activation named 'mish'; choose from: gelu"):
        feed_forward_like(GPT2Model(config).h[0].mlp, config)


def test_the_configuration_of_another_model_is_refused_with_both_shapes():
    model = GPT2Model(gpt2())
    other = GPT2Config(**(GPT2 | {"n_embd": 64}), **SPECIAL)
    with pytest.raises(ShapeError, match=r"weight of \(64, 64\) .* layer has \(32, 32\)"):
        attention_like(model.h[0].attn, other)
    with pytest.raises(ShapeError, match=r"weight of \(256, 64\) .* has \(128, 32\)"):
        feed_forward_like(model.h[0].mlp, other)
