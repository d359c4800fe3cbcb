"""A model's folder from anywhere: no code of its own, no pickle, no process and no network."""

from __future__ import annotations

import builtins
import json
import pickle
import shutil
import subprocess
import sys
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest

from headscope.errors import ModelError
from headscope.models.load import load_model
from tests.helpers.models import edit_config
from tests.limits import no_hang
from tests.models.every_layout import save_tiny

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
    refused = pytest.raises(ModelError, match="transformers")
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


CHILD = """
import sys
# imported before the guard, which watches reading alone
import headscope.models.engines.choose, headscope.models.engines.fused
from headscope.errors import ModelError
from headscope.models.load import load_model

STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork",
          "os.forkpty", "pty.spawn", "os.startfile"}
ASKS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}

def watch(event, given):
    if event in STARTS | ASKS:
        print("STARTED", event, repr(given)[:200], flush=True)
        raise RuntimeError(event)

sys.addaudithook(watch)
for name in sys.argv[1:]:
    for engine in ("auto", "lens"):
        try:
            print("ENDED", load_model(name, engine=engine).engine.name)
        except ModelError as error:
            print("ENDED", error)
print("ALL")
__import__("os").system("true")  # the watch reports it
"""
LAYOUTS = ("llama", "mistral", "bloom", "gemma3", "phi4_multimodal", "rwkv", "mamba")


def test_no_process_is_started_and_no_network_asked_while_a_model_loads(
    tokenizer, tmp_path_factory
):
    folders = [tmp_path_factory.mktemp(layout) for layout in LAYOUTS]
    for layout, folder in zip(LAYOUTS, folders, strict=True):
        save_tiny(layout, tokenizer, folder)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    *lines, last, started = done.stdout.splitlines()
    assert last == "ALL", done.stdout + done.stderr
    assert started.startswith("STARTED os.system")
    assert [line for line in lines if line.startswith("STARTED")] == []
    assert len(lines) == 2 * len(LAYOUTS)


@pytest.mark.parametrize("count", [10**9, 10**18, -1])
@pytest.mark.parametrize("field", ["n_layer", "n_head", "num_hidden_layers"])
def test_an_impossible_number_of_layers_or_heads_is_refused_at_once(folder, field, count):
    edit_config(folder, **{field: count})
    with no_hang(), pytest.raises(ModelError, match=field):
        load_model(str(folder))


@pytest.mark.parametrize("field", ["n_embd", "n_positions", "vocab_size"])
def test_an_impossible_size_is_refused_before_memory_is_taken(folder, field):
    edit_config(folder, **{field: 10**9})
    with no_hang(), pytest.raises(ModelError, match=field):
        load_model(str(folder))


@pytest.mark.parametrize("field", ["n_layer", "n_head", "n_embd"])
def test_a_model_without_layers_heads_or_width_is_refused(folder, field):
    edit_config(folder, **{field: 0})
    with pytest.raises(ModelError):
        load_model(str(folder))


@pytest.mark.parametrize("model_type", ["qwen2", "gemma3", "llama4"])
def test_layers_of_a_part_of_the_configuration_are_checked_too(folder, model_type):
    edit_config(folder, model_type=model_type, text_config={"num_hidden_layers": 10**9})
    with no_hang(), pytest.raises(ModelError, match="num_hidden_layers"):
        load_model(str(folder))
