"""Models in memory in the states in which users have them: precisions, training, quantised."""

from __future__ import annotations

from functools import partial
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


class Packed(nn.Module):
    """A projection as AWQ and GPTQ keep it: eight numbers of 4 bits in each int32, no parameter."""

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__()
        self.register_buffer("qweight", torch.zeros(columns, rows // 8, dtype=torch.int32))
        self.register_buffer("scales", torch.ones(1, rows))
        self.register_buffer("bias", torch.zeros(rows))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = (self.qweight[..., None] >> torch.arange(0, 32, 4)) & 15
        return x @ (numbers.flatten(1) * self.scales) + self.bias


def in_groups(network: nn.Module, method: str) -> None:
    """AWQ or GPTQ, in a stand-in of their modules: the libraries need a GPU."""
    for block in network.transformer.h:
        columns, rows = block.attn.c_attn.weight.shape
        block.attn.c_attn = Packed(columns, rows)
    network.config.quantization_config = SimpleNamespace(to_dict=lambda: {"quant_method": method})


@pytest.mark.parametrize(
    "quantise", [in_integers, partial(in_groups, method="awq"), partial(in_groups, method="gptq")]
)
def test_quantised_weights_in_memory_are_refused_with_the_way_to_read_them(quantise, pair):
    network, tokenizer = pair
    quantise(network)
    with pytest.raises(ModelError, match="dequantize"):
        open_model((network, tokenizer))
