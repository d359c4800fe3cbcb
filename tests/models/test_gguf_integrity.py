"""A GGUF file that is not whole, or holds more than it says, is refused by loading and anatomy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import ModelError
from headscope.models.checkpoint import find_checkpoint
from headscope.models.weights import load_weights
from tests.models.gguf_files import D_MODEL, VOCABULARY, save_gguf, sizes_of


def load(path: Path) -> tuple[Any, tuple[str, ...]]:
    return load_weights("m", find_checkpoint("m", path), torch.float32)


def test_a_whole_file_is_loaded(tmp_path):
    network, notes = load(save_gguf(tmp_path / "m.gguf", sizes_of(2)))
    rng = np.random.default_rng(0)
    first = rng.normal(size=(VOCABULARY, D_MODEL)).astype(np.float32)  # as save_gguf draws it
    assert np.array_equal(network.get_input_embeddings().weight.detach().numpy(), first)
    assert notes == ()
    tied = {key: size for key, size in sizes_of(2).items() if key != "output.weight"}
    assert load(save_gguf(tmp_path / "tied.gguf", tied))[1] == ()
    rotary = sizes_of(2) | {"rope_freqs.weight": (4,)}
    assert load(save_gguf(tmp_path / "rotary.gguf", rotary))[1] == ()


@pytest.mark.parametrize("key", [key for key in sizes_of(2) if key != "output.weight"])
def test_any_tensor_that_is_missing_or_of_another_shape_is_refused(tmp_path, key):
    sizes = sizes_of(2)
    less = {name: size for name, size in sizes.items() if name != key}
    with pytest.raises(ModelError, match="numbers and the model that it describes"):
        load(save_gguf(tmp_path / "less.gguf", less))
    other = sizes | {key: (sizes[key][0] * 2, *sizes[key][1:])}
    with pytest.raises(ModelError, match="numbers and the model that it describes") as told:
        load(save_gguf(tmp_path / "other.gguf", other))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("anatomy", [False, True])
@pytest.mark.parametrize(
    ("says", "holds", "message"),
    [
        (3, 2, "the file holds .* numbers and the model that it describes has"),
        (1, 2, "says 1 layers and holds tensors of layer 1, which would be left out"),
        (10**9, 2, "num_hidden_layers as 1,000,000,000, but the weights are 21 tensors"),
    ],
)
def test_layers_that_are_missing_or_left_over_are_refused(tmp_path, anatomy, says, holds, message):
    path = save_gguf(tmp_path / "m.gguf", sizes_of(holds), layers=says)
    with pytest.raises(ModelError, match=message):
        hs.anatomy(str(path)) if anatomy else load(path)


@pytest.mark.parametrize("key", ["blk.0.attn_q.bias", "blk.1.mystery.weight", "lonely"])
def test_a_tensor_that_transformers_would_leave_out_is_refused(tmp_path, key):
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2) | {key: (D_MODEL,)})
    with pytest.raises(ModelError, match="or leave out what does not fit"):
        load(path)


def test_swapped_shapes_of_equal_size_are_refused(tmp_path):
    sizes = sizes_of(2)
    one, two = "blk.0.attn_k.weight", "blk.0.attn_q.weight"
    sizes[one], sizes[two] = sizes[two], sizes[one]
    with pytest.raises(ModelError, match="tensors are not the shape that the configuration says"):
        load(save_gguf(tmp_path / "m.gguf", sizes))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(tmp_path, value):
    wrong = {"blk.1.ffn_up.weight": value}
    with pytest.raises(
        ModelError, match=r"1 of 2,048 numbers in model.layers.1.mlp.up_proj.weight"
    ):
        load(save_gguf(tmp_path / "m.gguf", sizes_of(2), wrong=wrong))
