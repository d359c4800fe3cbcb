"""Weight files: what is read is what is named, and what is hashed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers.modeling_utils
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from headscope.errors import ModelError
from headscope.models.load import load_model
from tests.helpers.models import edit_config

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


def map_first(folder: Path, to: str) -> str:
    """Map the first tensor of an index to another file."""
    index = json.loads((folder / INDEX).read_text())
    key = next(iter(index["weight_map"]))
    index["weight_map"][key] = to
    (folder / INDEX).write_text(json.dumps(index))
    return key


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
    model = load_model(str(sharded))
    assert set(model.weights_sha256) == opened
    assert len(opened) == 1 if whole else len(opened) > 1
    for name, digest in model.weights_sha256.items():
        assert digest == sha256(sharded / name)


@pytest.mark.parametrize(
    "way", ["evil.bin", "../secret.safetensors", "absolute", "sub/secret.safetensors"]
)
def test_an_index_that_names_no_safetensors_file_of_its_folder_is_refused(sharded, opened, way):
    secret = sharded.parent / "secret.safetensors"
    shutil.copy(next(iter(sharded.glob("model-*.safetensors"))), secret)
    (sharded / "evil.bin").write_bytes(b"a pickle")
    (sharded / "sub").symlink_to(sharded.parent)
    map_first(sharded, str(secret) if way == "absolute" else way)
    with pytest.raises(ModelError, match=r"no .safetensors file in the model's folder; headscope"):
        load_model(str(sharded))
    assert not opened


def test_the_links_of_the_hubs_cache_are_followed(sharded, tmp_path):
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(sharded.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    assert load_model(str(snapshot)).weights_sha256 == load_model(str(sharded)).weights_sha256


def test_a_part_that_is_missing_is_named(sharded):
    part = sorted(sharded.glob("model-*.safetensors"))[0]
    part.unlink()
    with pytest.raises(ModelError, match=f"weight files are missing, {part.name} first"):
        load_model(str(sharded))


def test_a_tensor_in_two_parts_is_refused(sharded):
    one, two = sorted(sharded.glob("model-*.safetensors"))[:2]
    first = load_file(one)
    key = next(iter(first))
    save_file(load_file(two) | {key: torch.zeros_like(first[key])}, two, {"format": "pt"})
    with pytest.raises(ModelError, match=f"{key} is in two of the model's files"):
        load_model(str(sharded))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"metadata": {}, "weight_map": {"a": 1}}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_index_is_refused(sharded, content):
    (sharded / INDEX).write_text(content)
    with pytest.raises(ModelError, match=r"index\.json: not an index of safetensors files") as told:
        load_model(str(sharded))
    assert "\n" not in str(told.value)


def test_a_folder_with_an_adapter_is_refused(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="merge_and_unload"):
        load_model(str(tmp_path))


def test_a_configuration_that_names_other_weights_is_refused(gpt2_folder, tmp_path):
    folder = Path(shutil.copytree(gpt2_folder, tmp_path / "m"))
    save_file({"a": torch.zeros(1)}, folder / "other.safetensors")
    edit_config(folder, transformers_weights="other.safetensors")
    with pytest.raises(ModelError, match=r"names its weights by transformers_weights \('other.saf"):
        load_model(str(folder))
