"""A checkpoint that is damaged in any way is refused, or loaded as it is: nothing is drawn."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.models.weight_files import find_checkpoint
from headscope.models.weights import load_weights
from tests.helpers.models import LAYOUTS, edit_config, save_model

WEIGHTS = "model.safetensors"
Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def folders(tokenizer, tmp_path_factory) -> dict[str, Path]:
    return {
        layout: save_model(layout, tokenizer, tmp_path_factory.mktemp(layout)) for layout in LAYOUTS
    }


@pytest.fixture
def copy(gpt2_folder, tmp_path) -> Path:
    return Path(shutil.copytree(gpt2_folder, tmp_path / "m"))


def edit(folder: Path, change: Callable[[Tensors], Tensors | None]) -> Path:
    """Rewrite a folder's weights."""
    tensors = load_file(folder / WEIGHTS)
    changed = change(tensors)
    tensors = tensors if changed is None else changed
    save_file(
        {key: each.contiguous().clone() for key, each in tensors.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )
    return folder


DAMAGE: dict[str, Callable[[Tensors, str], None]] = {
    "dropped": lambda tensors, key: tensors.__delitem__(key),
    "renamed": lambda tensors, key: tensors.update({key + "_x": tensors.pop(key)}),
    "one longer": lambda tensors, key: tensors.update(
        {key: torch.cat([tensors[key], tensors[key][:1]])}
    ),
    "flat": lambda tensors, key: tensors.update({key: tensors[key][None]}),
    "beside a bias of its own": lambda tensors, key: tensors.update(
        {key.rpartition(".")[0] + ".extra": torch.ones(3)}
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_tensor_is_refused_in_one_sentence(folders, tmp_path, layout, damage):
    # the tensors outside the layers, and those of layer 1
    keys = [key for key in load_file(folders[layout] / WEIGHTS) if ".0." not in key]
    for number, key in enumerate(keys):
        folder = Path(shutil.copytree(folders[layout], tmp_path / str(number)))
        edit(folder, lambda tensors, key=key: DAMAGE[damage](tensors, key) and None)
        with pytest.raises(ModelError) as error:
            load_weights("m", find_checkpoint("m", folder), torch.float32)
        assert "\n" not in str(error.value)
        assert "above report" not in str(error.value)
        assert not str(error.value).endswith(":")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_part_that_the_model_lacks_is_named_and_all_others_are_read(folders, tmp_path, layout):
    folder = Path(shutil.copytree(folders[layout], tmp_path / "m"))
    edit(folder, lambda tensors: tensors.update({"mystery.weight": torch.ones(3)}))
    network, notes = load_weights("m", find_checkpoint("m", folder), torch.float32)
    assert [note for note in notes if "mystery.weight" in note]
    tensors = load_file(folders[layout] / WEIGHTS)
    for name, value in network.state_dict().items():
        if name != "lm_head.weight" and not name.endswith("inv_freq"):  # tied, or no parameter
            assert any(key.endswith(name) and torch.equal(value, tensors[key]) for key in tensors)


def test_masks_and_rotary_frequencies_of_old_files_are_no_matter(folders, tmp_path):
    for layout, keys in (
        ("gpt2", ("transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias")),
        ("gpt_neox", ("gpt_neox.layers.1.attention.rotary_emb.inv_freq",)),
        ("llama", ("model.layers.1.self_attn.rotary_emb.inv_freq",)),
    ):
        folder = Path(shutil.copytree(folders[layout], tmp_path / layout))
        edit(folder, lambda all_, keys=keys: all_.update({key: torch.ones(4) for key in keys}))
        assert load_model(str(folder)).notes == ()


def test_a_tokenizer_that_is_larger_than_the_embedding_is_refused(copy):
    def cut(tensors):
        tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"][:150]

    edit_config(edit(copy, cut), vocab_size=150)
    with pytest.raises(
        ModelError,
        match=r"embedding.*150",
    ):
        load_model(str(copy))


def test_an_added_token_without_an_embedding_is_refused_where_a_text_holds_it(copy, tokenizer):
    from transformers import AutoTokenizer

    from headscope.corpus.document import Document

    larger = AutoTokenizer.from_pretrained(copy)
    larger.add_tokens(["<|pad|>"])  # special tokens in a text are split
    larger.save_pretrained(copy)
    model = load_model(str(copy))
    assert len(model.tokenizer.encode(Document("a", "the old keys", ())).tokens) > 2
    with pytest.raises(ModelError, match=r"<\|pad\|>"):
        model.tokenizer.encode(Document("b", "the <|pad|> keys", ()))
