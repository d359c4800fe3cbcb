"""A checkpoint that is damaged in any way is refused, or loaded as it is: nothing is drawn."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.checkpoint import find_checkpoint
from headscope.models.load import load_model
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
        folder / WEIGHTS, metadata={"format": "pt"},
    )  # fmt: skip
    return folder


def is_what_the_file_holds(network, file: Tensors, notes: tuple[str, ...]) -> bool:
    """Every parameter is a tensor of the file, and every tensor of the file is a parameter or is
    named in a note. Written without the code under test: names are compared by their ends."""
    own = {key: each for key, each in network.state_dict().items() if not key.endswith("inv_freq")}

    def same(name: str, key: str) -> bool:
        key = key.replace("embed_out", "lm_head")  # transformers' new name for GPT-NeoX's
        return name == key or name.endswith("." + key) or key.endswith("." + name)

    def equal(a: Tensor, b: Tensor) -> bool:
        return a.shape == b.shape and torch.equal(a.float(), b.float())

    used: set[str] = set()
    for name, value in own.items():
        found = [key for key in file if same(name, key) and equal(value, file[key])]
        tied = name in ("lm_head.weight", "embed_out.weight") and equal(
            value, network.get_input_embeddings().weight
        )
        if not found and not tied:
            return False
        used.update(found)
    return all(key in used or any(key in note for note in notes) for key in file)


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
    "beside an unknown part": lambda tensors, key: tensors.update(
        {"mystery.weight": torch.ones(3)}
    ),
}


def first_of_each_kind(folder: Path) -> Iterator[str]:
    """The tensors outside the layers, and those of layer 1."""
    for key in load_file(folder / WEIGHTS):
        if ".0." not in key:
            yield key


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_tensor_is_refused_or_loaded_as_it_is(folders, tmp_path, layout, damage):
    refused = 0
    kinds = list(first_of_each_kind(folders[layout]))
    for number, key in enumerate(kinds):
        folder = Path(shutil.copytree(folders[layout], tmp_path / str(number)))
        edit(folder, lambda tensors, key=key: DAMAGE[damage](tensors, key) and None)
        refused += refused_or_as_it_is(folder)
    assert refused == (0 if damage == "beside an unknown part" else len(kinds))


def refused_or_as_it_is(folder: Path) -> bool:
    try:
        network, notes = load_weights("m", find_checkpoint("m", folder), torch.float32)
    except ModelError as error:
        said = str(error)
    else:
        assert is_what_the_file_holds(network, load_file(folder / WEIGHTS), notes)
        return False
    assert "\n" not in said
    assert "above report" not in said
    assert not said.endswith(":")
    return True


def test_the_judge_of_these_tests_sees_a_tensor_that_was_drawn(folders):
    network, notes = load_weights("m", find_checkpoint("m", folders["llama"]), torch.float32)
    file = load_file(folders["llama"] / WEIGHTS)
    assert is_what_the_file_holds(network, file, notes)
    assert not is_what_the_file_holds(network, file | {"more": torch.ones(2)}, notes)
    network.model.layers[1].mlp.up_proj.weight.data.normal_()
    assert not is_what_the_file_holds(network, file, notes)


def test_a_scale_that_would_be_left_out_is_refused(folders, tmp_path):
    """Weights in eight bits are nothing without their scales."""
    folder = Path(shutil.copytree(folders["llama"], tmp_path / "m"))

    def scale(tensors):
        tensors["model.layers.0.mlp.up_proj.weight_scale_inv"] = torch.ones(1, 1)

    edit(folder, scale)
    with pytest.raises(
        ModelError,
        match=r"scale_inv is of a module that would be loaded without it",
    ):
        load_model(str(folder))


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
    with pytest.raises(ModelError, match=r"token \d+ in its vocabulary \('.+'\) has no embedding: "
                       "the model has 150 of them"):  # fmt: skip
        load_model(str(copy))


def test_an_added_token_without_an_embedding_is_refused_where_a_text_holds_it(copy, tokenizer):
    from transformers import AutoTokenizer

    from headscope.corpus.document import Document

    larger = AutoTokenizer.from_pretrained(copy)
    larger.add_tokens(["<|pad|>"], special_tokens=True)
    larger.save_pretrained(copy)
    model = load_model(str(copy))
    assert len(model.tokenizer.encode(Document("a", "the old keys", ())).tokens) > 2
    with pytest.raises(ModelError, match=r"in the text of b \('<\|pad\|>'\) has no embedding"):
        model.tokenizer.encode(Document("b", "the <|pad|> keys", ()))
