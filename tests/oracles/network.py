"""Networks of transformers that hold what is planted, and nothing else: all other weights are 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.models.layout.dimensions import read_dimensions
from headscope.models.layout.projections import (
    attention_by_layer,
    layer_list,
    output_matrix,
    output_projection,
    projection_modules,
    projections,
)
from headscope.models.locate import locate
from headscope.models.tokenizer import load_tokenizer
from headscope.models.weights import network_class, quiet_logging, read_config

NORMS = {"gpt2": "ln_1", "gpt_neox": "input_layernorm", "llama": "input_layernorm"}
"""The norm before a layer's attention, by layout."""
D_FF = 4
"""Width of the feed-forward blocks, which are silent."""


@dataclass(frozen=True)
class NetworkSize:
    """The numbers of a planted network."""

    words: int
    layers: int
    heads: int
    d_head: int
    context: int


class HeadMaps:
    """A linear map of each head, with its bias."""

    def __init__(self, layers: int, heads: int, *, into: int, out: int) -> None:
        self.weight = np.zeros((layers, heads, into, out))
        self.bias = np.zeros((layers, heads, out))


def planted_config(layout: str, size: NetworkSize, rope: dict[str, float]) -> Any:
    """The configuration of a planted network.

    Args:
        layout: `gpt2`, `gpt_neox` or `llama`.
        size: its numbers.
        rope: of rotary positions; GPT-2 has none.
    """
    from transformers import AutoConfig

    fields: dict[str, Any] = {
        "vocab_size": size.words,
        "hidden_size": size.heads * size.d_head,
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "n_inner" if layout == "gpt2" else "intermediate_size": D_FF,
        "max_position_embeddings": size.context,
    }
    if layout != "gpt2":
        fields |= {"rope_parameters": {"rope_type": "default", **rope}}
    if layout == "llama":
        fields |= {"num_key_value_heads": size.heads, "head_dim": size.d_head}
        fields |= {"tie_word_embeddings": True}
    return AutoConfig.for_model(layout, **fields, bos_token_id=0, eos_token_id=0)


def mirrored(table: Float[ndarray, "row d_model"], half: int) -> Float[ndarray, "row d_model"]:
    """A table whose first columns stand again behind them with the other sign."""
    table[:, half : 2 * half] = -table[:, :half]
    return table


def wave_positions(
    size: NetworkSize, frequencies: Float[ndarray, " wave"], start: int, half: int
) -> Float[ndarray, "position d_model"]:
    """Embeddings of positions: cosines and sines from a column on, mirrored."""
    angle = np.arange(size.context)[:, None] * frequencies
    positions = np.zeros((size.context, size.heads * size.d_head))
    positions[:, start : start + 2 * len(frequencies)] = np.hstack([np.cos(angle), np.sin(angle)])
    return mirrored(positions, half)


def save_network(
    config: Any,
    maps: Sequence[HeadMaps],
    folder: Path,
    *,
    embedding: Float[ndarray, "word d_model"],
    positions: Float[ndarray, "position d_model"] | None,
    gains: Sequence[float],
) -> None:
    """Write a network with these weights.

    Args:
        config: from `planted_config`.
        maps: of queries, keys, values and outputs, those of outputs from z to the stream.
        folder: where to write.
        embedding: of each word.
        positions: of a layout that adds them to the embedding; None of a rotary one.
        gains: of each layer's norm before its attention.
    """
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_config(config)
    for name, tensor in network.state_dict().items():
        is_gain = ("norm" in name or ".ln_" in name) and name.endswith("weight")
        tensor.fill_(float(is_gain))
    _fill(network.get_input_embeddings().weight.data, embedding)
    if positions is not None:
        _fill(network.transformer.wpe.weight.data, positions)
    layers = layer_list(network, len(attention_by_layer(network)))
    for layer, gain in zip(layers, gains, strict=True):
        getattr(layer, NORMS[config.model_type]).weight.data.fill_(gain)
    _fill_attention(network, maps)
    with quiet_logging():
        network.save_pretrained(folder)


def save_random(name: str, folder: Path, *, seed: int) -> Path:
    """Write a model of the same architecture and tokenizer with newly drawn weights."""
    path, _ = locate(name, None)
    config = read_config(name, path)
    torch.manual_seed(seed)
    with quiet_logging():
        network_class(name, config).from_config(config).save_pretrained(folder)
        load_tokenizer(name, path).save_pretrained(folder)
    return folder


def _fill_attention(network: Any, maps: Sequence[HeadMaps]) -> None:
    dimensions = read_dimensions(network.config.model_type, network.config)
    *inputs, output = maps
    for layer, attention in enumerate(projection_modules(network)):
        matrices = projections(attention, dimensions)[:3]
        for head_maps, matrix in zip(inputs, matrices, strict=True):
            _fill(matrix, head_maps.weight[layer].transpose(0, 2, 1))
        biases = np.stack([head_maps.bias[layer] for head_maps in inputs])
        if network.config.model_type == "gpt2":
            _fill(attention.c_attn.bias.data, biases)
        elif network.config.model_type == "gpt_neox":  # head by head
            _fill(attention.query_key_value.bias.data, biases.swapaxes(0, 1))
        _fill(output_matrix(output_projection(attention)), output.weight[layer])


def _fill(tensor: Tensor, values: Float[ndarray, ...]) -> None:
    source = torch.from_numpy(np.ascontiguousarray(values)).to(tensor.dtype)
    tensor.copy_(source.reshape(tensor.shape))
