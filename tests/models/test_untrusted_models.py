"""A model's folder from anywhere: its code is never run, and its pickles are never loaded."""

from __future__ import annotations

import builtins
import json
import pickle
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from headscope.errors import ModelError
from headscope.models.load import load_model
from tests.helpers.models import edit_config

ENGINES = ["fused", "lens"]


@pytest.fixture
def folder(gpt2_folder, tmp_path) -> Path:
    return shutil.copytree(gpt2_folder, tmp_path / "model")


@pytest.fixture
def code(folder, monkeypatch) -> Path:
    """Code beside the model that leaves a mark when it is imported."""

    def ask(*_: object) -> str:
        raise AssertionError("a question to the user")

    monkeypatch.setattr(builtins, "input", ask)
    mark = folder.parent / "mark"
    (folder / "evil.py").write_text(
        f"open({str(mark)!r}, 'w')\nConfig = Model = Tokenizer = None\n"
    )
    return mark


def claim_tokenizer(folder: Path, **facts: object) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | facts))


@pytest.mark.parametrize("engine", ENGINES)
def test_code_that_comes_with_a_known_model_is_not_run(folder, code, engine):
    edit_config(
        folder, auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    )
    claim_tokenizer(folder, auto_map={"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]})
    assert load_model(str(folder), engine=engine).layers == 2
    assert not code.exists()


def test_a_tokenizers_own_code_is_not_run_and_nobody_is_asked(folder, code):
    claim_tokenizer(
        folder, tokenizer_class="EvilTokenizer",
        auto_map={"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]},
    )  # fmt: skip
    with suppress(ModelError):  # transformers may have a class of its own that serves
        load_model(str(folder))
    assert not code.exists()


def test_a_model_that_needs_its_own_code_is_refused_without_a_question(folder, code):
    edit_config(
        folder, model_type="evil",
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
    )  # fmt: skip
    with pytest.raises(ModelError, match="transformers cannot read its configuration"):
        load_model(str(folder))
    assert not code.exists()


class Bomb:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.mark), "w")


def test_a_pickle_beside_safetensors_is_not_loaded(folder, code):
    pickle.loads(pickle.dumps(Bomb(code))).close()
    assert code.exists()  # the bomb works
    code.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(code)))
    assert load_model(str(folder)).layers == 2
    assert not code.exists()
