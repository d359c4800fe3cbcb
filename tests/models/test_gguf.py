"""GGUF files: read whole or refused by loading, and taken apart once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.models.weight_files import find_checkpoint
from headscope.models.weights import load_weights
from tests.limits import no_hang
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


WITHOUT = {key: size for key, size in sizes_of(2).items() if key != "blk.1.attn_q.weight"}
WRONG = {
    "a tensor less": (WITHOUT, 2),
    "another shape": (sizes_of(2) | {"output_norm.weight": (2 * D_MODEL,)}, 2),
    "a bias that is left out": (sizes_of(2) | {"blk.0.attn_q.bias": (D_MODEL,)}, 2),
    "a layer left over": (sizes_of(2), 1),
    "a layer less": (sizes_of(2), 3),
}
"""Tensors of a file, and the number of layers that it states."""


@pytest.mark.parametrize("case", WRONG)
def test_tensors_that_are_not_those_of_the_stated_model_are_refused(tmp_path, case):
    sizes, layers = WRONG[case]
    path = save_gguf(tmp_path / "m.gguf", sizes, layers=layers)
    with pytest.raises(ModelError, match="numbers") as told:
        load(path)
    assert "\n" not in str(told.value)


BROKEN = {
    "empty": lambda raw: b"",
    "another magic": lambda raw: b"PK\3\4" + raw[4:],
    "half a header": lambda raw: raw[:23],
    "half a file": lambda raw: raw[: len(raw) // 2],
    "a wrong count": lambda raw: raw[:8] + (2**60).to_bytes(8, "little") + raw[16:],
}
"""Changes of the bytes of a whole file."""


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_not_whole_is_refused(tmp_path, kind):
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2))
    path.write_bytes(BROKEN[kind](path.read_bytes()))
    with pytest.raises(ModelError, match="GGUF"):
        load_model(str(path))


def test_a_file_is_taken_apart_once_and_is_the_same_model_afterwards(
    tmp_path, tokenizer, monkeypatch
):
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    file = save_gguf(tmp_path / "m.gguf", sizes_of(2), tokenizer=tokenizer)
    first = load_model(str(file))
    (kept,) = (tmp_path / "cache" / "unpacked").iterdir()
    with monkeypatch.context() as context:
        context.setattr(gguf.GGUFReader, "__init__", lambda *_: pytest.fail("taken apart again"))
        second = load_model(str(file))
    for name, tensor in first.engine.network.state_dict().items():
        assert torch.equal(tensor, second.engine.network.state_dict()[name])
    facts = ("name", "context", "architecture", "notes", "weights_sha256")
    assert all(getattr(first, fact) == getattr(second, fact) for fact in facts)
    every = range(second.vocabulary_size)
    assert first.tokenizer.spell(every) == second.tokenizer.spell(every)
    assert list(kept.parent.iterdir()) == [kept]
    save_gguf(file, sizes_of(2), tokenizer=tokenizer, seed=1)
    load_model(str(file))
    assert len(list(kept.parent.iterdir())) == 2  # another file of the same name


def test_a_file_is_read_where_nothing_can_be_kept(tmp_path, tokenizer, monkeypatch):
    (tmp_path / "taken").write_text("no folder")
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "taken"))
    file = save_gguf(tmp_path / "m.gguf", sizes_of(2), tokenizer=tokenizer)
    assert load_model(str(file)).layers == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "taken"]


def test_an_impossible_number_of_layers_is_refused_at_once(tmp_path):
    path = save_gguf(tmp_path / "m.gguf", sizes_of(1), layers=2**31)
    with no_hang(), pytest.raises(ModelError, match="block_count"):
        load_model(str(path))
