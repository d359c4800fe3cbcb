"""Small models with random weights, a real model where its file is at hand, and annotated text."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
import typer.main
import typer.testing
from filelock import FileLock

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.models.packaged import PACKAGED
from tests.browser import Browser, browser_session
from tests.helpers.models import LAYOUTS, save_model
from tests.helpers.shell import headscope
from tests.helpers.texts import SENTENCES

# what the tests import is no garbage: Python looks through it less often
gc.set_threshold(10_000)
# the command line is made once, not for each call of it
_command_of = cache(typer.main.get_command)
for _module, _name in ((typer.main, "get_command"), (typer.testing, "_get_command")):
    setattr(_module, _name, _command_of)
# no test may wait for a network
os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "3")
# each core has a process of tests, whose threads would wait for each other; torch read the variable
# when it was imported, so that it counts for commands that a test starts
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")

GUM = ("vlog/GUM_vlog_pizzeria", "court/GUM_court_loan", "bio/GUM_bio_byron")
"""Three genres."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_session() as started:
        yield started


@pytest.fixture(autouse=True)
def shared_modules_without_hooks() -> Iterator[None]:
    """No test leaves a hook on a module that all models of a process share, such as GPT-1's
    activation: the next model of that type would run it."""
    yield
    hooked = []
    for name in [name for name in sys.modules if name.startswith("transformers.models.")]:
        for module in shared_modules(name):
            if module._forward_hooks or module._forward_pre_hooks:
                hooked.append(f"{name}: {module}")
                module._forward_hooks.clear()
                module._forward_pre_hooks.clear()
    assert not hooked


@cache
def shared_modules(name: str) -> list[torch.nn.Module]:
    """Modules of PyTorch that a Python module makes once, alone or in a dict."""
    values: list[object] = []
    # transformers imports what is asked of its lazy modules; their own dict holds what is there
    for value in sys.modules[name].__dict__.values():
        values += value.values() if type(value) is dict else [value]
    return [value for value in values if isinstance(value, torch.nn.Module)]


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.conllu"
    path.write_text(SENTENCES, encoding="utf-8")
    return path


@pytest.fixture(scope="session", params=[pytest.param("gold", marks=pytest.mark.slow), "gum"])
def annotated(request) -> list[Path]:
    """Prose with trees and mentions: what was written for headscope, and natural text, which has
    whatever the first has."""
    if request.param == "gold":
        return [data_folder() / "corpora" / "gold.conllu"]
    return [data_folder() / "gum" / f"{name}.conllu.xz" for name in GUM]


@pytest.fixture(scope="session")
def mini_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of one run of `mini` for all processes; tests read it and write into copies."""
    home = tmp_path_factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    with FileLock(home / "mini.lock"):
        if not (home / "mini").is_dir():
            hs.classify("mini", ["controlled", "gold"], max_tokens=3_000, out=home / "mini")
    return home / "mini"


@pytest.fixture(scope="session")
def prose() -> Path:
    """Prose for a real model, with enough pronouns in a few thousand tokens: biographies."""
    return data_folder() / "gum" / "bio"


@pytest.fixture(scope="session")
def smollm2() -> str:
    path = PACKAGED["smollm2"].path
    if not path.exists():
        pytest.skip("needs smollm2 in the cache: headscope check models --fetch smollm2")
    return str(path)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    """A byte-level BPE of 300 tokens, trained on a few sentences, with GPT-2's special token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the old keys were in the house and she told them that"], trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>"
    )


@pytest.fixture(scope="session", params=LAYOUTS)
def model_folder(request, tokenizer, tmp_path_factory) -> Path:
    """A small model of each layout with random weights, sharp enough to attend unevenly."""
    return save_model(request.param, tokenizer, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def gpt2_folder(tokenizer, tmp_path_factory) -> Path:
    return save_model("gpt2", tokenizer, tmp_path_factory.mktemp("one"))


@pytest.fixture
def command():
    """The command line within this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        done = headscope(*arguments)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some windows of unequal length."""
    folder = tmp_path_factory.mktemp("story")
    sentence = "Alice told them that she was in the house and the old keys were very tired. "
    for name, times in (("a", 1), ("b", 3), ("c", 7), ("d", 2)):
        (folder / f"{name}.txt").write_text(sentence[len(name) * times :] * times)
    return folder
