"""Weight files: what is read is what is named, and what is hashed."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import transformers.modeling_utils
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.models.weight_files import find_checkpoint
from tests.helpers.models import edit_config, save_model

INDEX = "model.safetensors.index.json"


@pytest.fixture
def sharded(gpt2_folder, tmp_path) -> Path:
    folder = Path(shutil.copytree(gpt2_folder, tmp_path / "outer" / "m"))
    (folder / "model.safetensors").unlink()
    AutoModelForCausalLM.from_pretrained(gpt2_folder).save_pretrained(folder, max_shard_size="60KB")
    return folder


@pytest.fixture
def opened(monkeypatch) -> set[str]:
    """The names of the files that transformers opens as weights."""
    names: set[str] = set()
    own = transformers.modeling_utils.safe_open

    def spy(path, *args, **more):
        names.add(Path(path).name)
        return own(path, *args, **more)

    monkeypatch.setattr(transformers.modeling_utils, "safe_open", spy)
    return names


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("stray", [None, "aaa.safetensors", "consolidated.safetensors"])
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_read_is_what_is_hashed(gpt2_folder, sharded, opened, stray, whole):
    """Parts beside a whole file are not read, nor is a file that no index names."""
    if whole:
        shutil.copy(gpt2_folder / "model.safetensors", sharded)
    if stray:
        save_file({"transformer.wte.weight": torch.zeros(3)}, sharded / stray)
        edit_config(sharded, transformers_weights=stray)
    model = load_model(str(sharded))
    assert set(model.weights_sha256) == opened
    assert len(opened) == 1 if whole else len(opened) > 1
    for name, digest in model.weights_sha256.items():
        assert digest == sha256(sharded / name)


WAYS = ("evil.bin", "../secret.safetensors", "absolute", "sub/secret.safetensors")


@pytest.mark.parametrize("way", WAYS)
def test_an_index_that_names_no_safetensors_file_of_its_folder_is_refused(sharded, opened, way):
    secret = sharded.parent / "secret.safetensors"
    shutil.copy(next(iter(sharded.glob("model-*.safetensors"))), secret)
    (sharded / "evil.bin").write_bytes(b"a pickle")
    (sharded / "sub").symlink_to(sharded.parent)
    index = json.loads((sharded / INDEX).read_text())
    key = next(iter(index["weight_map"]))
    index["weight_map"][key] = str(secret) if way == "absolute" else way
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match="safetensors"):
        load_model(str(sharded))
    assert not opened


def no_index(content: str) -> tuple[Callable[[Path], object], str]:
    return (
        lambda folder: (folder / INDEX).write_text(content),
        r"index\.json",
    )


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an adapter": (
        lambda folder: [
            (folder / INDEX).unlink(),
            (folder / "adapter_config.json").write_text("{}"),
        ],
        "merge_and_unload",
    ),
    "an empty index": no_index(""),
    "an index without a map": no_index("{}"),
    "an index of numbers": no_index('{"metadata": {}, "weight_map": {"a": 1}}'),
    "an index too deep": no_index("[" * 100_000),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_folder_whose_weights_are_not_those_of_its_index_is_refused(sharded, kind):
    change, message = REFUSED[kind]
    change(sharded)
    with pytest.raises(ModelError, match=message) as told:
        load_model(str(sharded))
    assert "\n" not in str(told.value)


def test_the_widest_matrix_says_how_wide_a_checkpoint_is(tokenizer, tmp_path):
    save_model("llama", tokenizer, tmp_path / "wide")
    assert find_checkpoint("wide", tmp_path / "wide").stored_bits() == 32
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "wide", dtype=torch.bfloat16)
    for module, bits in ((None, 16), (model.model.norm, 16), (model.model.layers[1].mlp, 32)):
        if module is not None:
            module.to(torch.float32)
        model.save_pretrained(tmp_path)
        assert find_checkpoint("other", tmp_path).stored_bits() == bits


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("Q8_0", 16), ("F16", 16), ("BF16", 16), ("F32", 32)],  # another matrix has 16
)
def test_a_gguf_file_is_as_wide_as_its_widest_matrix(tmp_path, kind, bits):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    wide, dtype = np.ones((2, 64), np.float32), gguf.GGMLQuantizationType[kind]
    writer.add_tensor("norm.weight", wide[0])
    writer.add_tensor("half.weight", wide.astype(np.float16))
    writer.add_tensor("odd.weight", gguf.quants.quantize(wide, dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert find_checkpoint(kind, tmp_path / "model.gguf").stored_bits() == bits
