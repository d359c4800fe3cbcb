"""A GGUF file that is not whole, or holds more than it says, is refused by loading and anatomy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import ModelError
from headscope.models.checkpoint import find_checkpoint
from headscope.models.load import load_model
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


AGAIN = "download or convert it again"
BROKEN = {
    "empty": (lambda raw: b"", f"not a GGUF file: it is empty; {AGAIN}"),
    "other magic": (
        lambda raw: b"PK\3\4" + raw[4:],
        "not a GGUF file: it begins with b'PK\\x03\\x04' and not with b'GGUF'; name a GGUF file, or "
        "the folder of a model in Hugging Face layout",
    ),
    "three bytes": (lambda raw: raw[:3], f"not a whole GGUF file: it ends after 3 bytes, within its header; {AGAIN}"),
    "magic alone": (lambda raw: raw[:4], f"not a whole GGUF file: it ends after 4 bytes, within its header; {AGAIN}"),
    "half a header": (lambda raw: raw[:23], f"not a whole GGUF file: it ends after 23 bytes, within its header; {AGAIN}"),
    "another version": (
        lambda raw: raw[:4] + (99).to_bytes(4, "little") + raw[8:],
        "is of GGUF version 99, and headscope reads versions 2 and 3; convert the model again with llama.cpp",
    ),
    "no tensors": (lambda raw: raw[:8] + bytes(8) + raw[16:], f"holds no tensors, and so no weights; {AGAIN}"),
    **{
        f"cut at {size}": (
            lambda raw, size=size: raw[:size],
            f"not a whole GGUF file: it is damaged, or cut off after its {size:,} bytes; {AGAIN}",
        )
        for size in (24, 25, 40, 333, 1000, 8000, 80_000)
    },
    **{
        f"a number at {at} is 2**60": (
            lambda raw, at=at: raw[:at] + (2**60).to_bytes(8, "little") + raw[at + 8 :],
            f"not a whole GGUF file: it is damaged, or cut off after its 155,872 bytes; {AGAIN}",
        )
        for at in (8, 16, 24)
    },
}  # fmt: skip
"""What is done to the bytes of a whole file, and what is said of it then."""


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_not_whole_is_refused_by_what_is_wrong_with_it(tmp_path, kind):
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2))
    change, said = BROKEN[kind]
    path.write_bytes(change(path.read_bytes()))
    size = f"{path.stat().st_size:,} bytes"
    for call in (load_model, hs.anatomy):
        with pytest.raises(ModelError) as error:
            call(str(path))
        assert str(error.value) == f"{path}: {said.replace('155,872 bytes', size)}"


@pytest.mark.parametrize(
    ("left_out", "entry"),
    [
        ("add_block_count", "block_count"),
        ("add_context_length", "context_length"),
        ("add_embedding_length", "embedding_length"),
        ("add_feed_forward_length", "feed_forward_length"),
        ("add_head_count", "attention.head_count"),
        ("add_layer_norm_rms_eps", "attention.layer_norm_rms_epsilon"),
    ],
)
def test_an_entry_without_which_another_model_would_be_built_is_named(
    tmp_path, monkeypatch, left_out, entry
):
    monkeypatch.setattr(gguf.GGUFWriter, left_out, lambda *_: None)
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2))
    with pytest.raises(ModelError) as error:
        load(path)
    assert str(error.value) == (
        f"{path}: its metadata has no llama.{entry}, without which the model cannot be built; {AGAIN}"
    )


@pytest.mark.parametrize(
    ("writes", "value", "said"),
    [
        ("add_head_count", 0, "attention.head_count as 0; it should be a whole number of at least 1"),
        ("add_layer_norm_rms_eps", np.nan,
         "attention.layer_norm_rms_epsilon as nan; it should be a number from 0 to 1"),
        ("add_layer_norm_rms_eps", -1.0,
         "attention.layer_norm_rms_epsilon as -1.0; it should be a number from 0 to 1"),
        ("add_layer_norm_rms_eps", np.inf,
         "attention.layer_norm_rms_epsilon as inf; it should be a number from 0 to 1"),
    ],
)  # fmt: skip
def test_a_number_that_no_model_can_have_is_named(tmp_path, monkeypatch, writes, value, said):
    own = getattr(gguf.GGUFWriter, writes)
    monkeypatch.setattr(gguf.GGUFWriter, writes, lambda writer, _: own(writer, value))
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2))
    with pytest.raises(ModelError) as error:
        load(path)
    assert str(error.value) == f"{path}: its metadata gives llama.{said}"


def test_a_layout_that_is_not_stated_or_not_known_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf.GGUFWriter, "add_architecture", lambda _: None)
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2))
    with pytest.raises(ModelError, match=r"its metadata has no general\.architecture, which names"):
        load(path)
    monkeypatch.setattr(
        gguf.GGUFWriter,
        "add_architecture",
        lambda writer: writer.add_string("general.architecture", "nosuch"),
    )
    path = save_gguf(tmp_path / "n.gguf", sizes_of(2))
    with pytest.raises(
        ModelError, match=r"its layout is 'nosuch', which transformers does not .* llama"
    ):
        load(path)


@pytest.mark.parametrize(
    ("left_out", "entry"),
    [
        ("add_tokenizer_model", "model"),
        ("add_token_list", "tokens"),
        ("add_token_merges", "merges"),
    ],
)
def test_a_part_of_the_tokenizer_that_is_missing_is_named(
    tmp_path, monkeypatch, tokenizer, left_out, entry
):
    monkeypatch.setattr(gguf.GGUFWriter, left_out, lambda *_: None)
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2), tokenizer=tokenizer)
    with pytest.raises(ModelError) as error:
        load_model(str(path))
    assert str(error.value) == (
        f"{path}: its metadata has no tokenizer.ggml.{entry}, without which there is no tokenizer; {AGAIN}"
    )
