"""A model's folder from anywhere: its code is never run, and its pickles are never loaded."""

from __future__ import annotations

import builtins
import json
import pickle
import shutil
from contextlib import nullcontext, suppress
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


OWN_MODEL = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
OWN_TOKENIZER = {"auto_map": {"AutoTokenizer": ["evil.Tokenizer", "evil.Tokenizer"]}}
CLAIMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "a known model": ({"auto_map": OWN_MODEL}, OWN_TOKENIZER),
    "an unknown tokenizer": ({}, {"tokenizer_class": "EvilTokenizer", **OWN_TOKENIZER}),
    "an unknown model": ({"auto_map": OWN_MODEL, "model_type": "evil"}, {}),
}
"""Entries of a model's configuration and of its tokenizer's that name the code."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("claim", CLAIMS)
def test_code_that_comes_with_a_model_is_not_run_and_nobody_is_asked(folder, code, claim, engine):
    of_model, of_tokenizer = CLAIMS[claim]
    edit_config(folder, **of_model)
    claim_tokenizer(folder, **of_tokenizer)
    refused = pytest.raises(ModelError, match="transformers cannot read its configuration")
    # transformers may have a tokenizer of its own that serves
    loads = {"a known model": nullcontext(), "an unknown model": refused}
    with loads.get(claim, suppress(ModelError)):
        assert load_model(str(folder), engine=engine).layers == 2
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
