"""Models in memory in the states in which users have them: precisions, training, quantised."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from headscope.errors import ModelError
from headscope.models.load import open_model
from tests.models.every_layout import attention_of, own_network, patterns


@pytest.fixture
def pair(gpt2_folder):
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder)
    return network, AutoTokenizer.from_pretrained(gpt2_folder)


@pytest.mark.parametrize("engine", ["auto", "eager"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("bfloat16", 5e-2), ("float16", 1e-2), ("float32", 1e-4)]
)
def test_a_network_in_training_is_read_in_its_precision_and_trains_on(
    engine, dtype, tolerance, pair, gpt2_folder
):
    network, tokenizer = pair
    network.to(getattr(torch, dtype)).train()
    model = open_model((network, tokenizer), engine=engine)
    tokens = torch.arange(40)[None]
    own = own_network(gpt2_folder).to(getattr(torch, dtype))
    expected = attention_of(own, tokens)
    for pattern, weights in zip(patterns(model, tokens), expected, strict=True):
        assert float((pattern.float() - weights.float()).abs().max()) < tolerance
    assert model.dtype == dtype
    assert network.training
    assert network.dtype == getattr(torch, dtype)


def in_integers(network: nn.Module) -> None:
    """Weights as bitsandbytes keeps them, in a stand-in: the library needs a GPU."""
    matrix = network.transformer.h[0].attn.c_attn
    rounded = matrix.weight.data.to(torch.int8)
    matrix.weight = nn.Parameter(rounded, requires_grad=False)


def in_groups(network: nn.Module) -> None:
    """The configuration that AWQ and GPTQ leave; their packed weights are no parameters."""
    network.config.quantization_config = SimpleNamespace(to_dict=lambda: {"quant_method": "gptq"})


@pytest.mark.parametrize("quantise", [in_integers, in_groups])
def test_quantised_weights_in_memory_are_refused_with_the_way_to_read_them(quantise, pair):
    network, tokenizer = pair
    quantise(network)
    with pytest.raises(ModelError, match="dequantize"):
        open_model((network, tokenizer))
