"""A GGUF file is taken apart once: what is kept of it is the same model, and never in the way."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from headscope.models import gguf_files
from headscope.models.gguf_files import MATRIX_BITS, gguf_matrix_bits, matrix_bits
from headscope.models.load import load_model
from tests.models.gguf_files import save_gguf, sizes_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "unpacked"


@pytest.fixture
def file(tmp_path: Path, tokenizer) -> str:
    return str(save_gguf(tmp_path / "m.gguf", sizes_of(2), tokenizer=tokenizer))


def weights(model) -> dict[str, torch.Tensor]:
    return model.engine.network.state_dict()


def same(one, two) -> bool:
    ours, theirs = weights(one), weights(two)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def test_the_second_time_it_is_the_same_model_and_the_file_is_not_taken_apart(
    file, cache, monkeypatch
):
    first = load_model(file)
    (kept,) = cache.iterdir()
    bits = gguf_matrix_bits(Path(file))
    monkeypatch.setattr(gguf.GGUFReader, "__init__", lambda *_: pytest.fail("taken apart again"))
    second = load_model(file)
    assert same(first, second)
    assert second.weights_sha256 == first.weights_sha256
    assert (second.name, second.context, second.architecture, second.notes) == (
        first.name, first.context, first.architecture, first.notes,
    )  # fmt: skip
    every = range(second.vocabulary_size)
    assert first.tokenizer.spell(every) == second.tokenizer.spell(every)
    assert first.tokenizer.bos == second.tokenizer.bos
    assert list(cache.iterdir()) == [kept]
    # `--dtype auto` asks how wide it was
    assert matrix_bits(Path(file), *second.weights_sha256.values()) == bits > 0


def test_the_bits_of_what_was_not_kept_are_read_of_the_file(file, cache, monkeypatch):
    (checksum,) = load_model(file).weights_sha256.values()
    (kept,) = cache.iterdir()
    for spoiled in ("", "many"):
        (kept / MATRIX_BITS).write_text(spoiled, encoding="ascii")
        assert matrix_bits(Path(file), checksum) == gguf_matrix_bits(Path(file))
    monkeypatch.setenv("HEADSCOPE_CACHE", "")
    assert matrix_bits(Path(file), checksum) == gguf_matrix_bits(Path(file))


@pytest.mark.parametrize("damage", ["model.safetensors", "config.json"])
def test_what_is_damaged_is_made_again(file, cache, damage):
    first = load_model(file)
    (kept,) = cache.iterdir()
    (kept / damage).write_bytes(b"{}")
    assert same(first, load_model(file))
    assert (kept / damage).stat().st_size > 2


def test_another_file_of_the_same_name_is_another_model(file, cache, tokenizer):
    first = load_model(file)
    save_gguf(Path(file), sizes_of(2), tokenizer=tokenizer, seed=1)
    assert not same(first, load_model(file))
    assert len(list(cache.iterdir())) == 2


def test_nothing_is_kept_where_that_is_not_wanted_or_cannot_be(file, cache, monkeypatch, tmp_path):
    load_model(file, dtype="bfloat16")
    with monkeypatch.context() as small:
        small.setattr(gguf_files, "MAX_BYTES", 1000)
        load_model(file)
    assert not cache.exists()
    (tmp_path / "taken").write_text("no folder")
    for asked in (str(tmp_path / "taken"), ""):
        monkeypatch.setenv("HEADSCOPE_CACHE", asked)
        load_model(file)
    assert not cache.exists()
