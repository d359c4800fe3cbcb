"""Folders that are no model: refused by their files alone, before torch is imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from headscope.errors import ModelError
from headscope.models.in_memory import open_model
from headscope.models.load import load_model
from tests.helpers.models import edit_config
from tests.models.tiny import tiny_config

WEIGHTS = "model.safetensors"


def in_place_of(file: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    """A change of a folder: something else stands where a file was."""

    def change(folder: Path) -> None:
        (folder / file).unlink()
        make(folder / file)

    return change


def no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def index_of_a_link(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "gone")
    (folder / "a.safetensors").symlink_to("nowhere")
    index = {"metadata": {}, "weight_map": {"wte.weight": "a.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no configuration": (lambda folder: (folder / "config.json").unlink(), "no config.json"),
    "a list": (lambda folder: (folder / "config.json").write_text("[]"), "not a JSON object"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "no .safetensors file"),
    "no header": (lambda folder: (folder / WEIGHTS).write_bytes(b"no"), "not a safetensors file"),
    "no tokenizer": (no_tokenizer, "tokenizer"),
    "a flag": (lambda folder: edit_config(folder, is_causal=False), "sets is_causal to False"),
    **{
        f"{words} for {file}": (in_place_of(file, make), f"{file} is {words}")
        for file in ("config.json", WEIGHTS)
        for words, make in {
            "a link to 'nowhere', where nothing is": lambda path: path.symlink_to("nowhere"),
            "a pipe": os.mkfifo,
            "a folder": Path.mkdir,
        }.items()
    },
    "a link in an index": (index_of_a_link, "a.safetensors is a link to 'nowhere'"),
}


@pytest.fixture(scope="module")
def bad(gpt2_folder, tmp_path_factory) -> Path:
    folders = tmp_path_factory.mktemp("bad")
    for name, (change, _) in BAD.items():
        change(Path(shutil.copytree(gpt2_folder, folders / name.replace("'", ""))))
    return folders


@pytest.mark.parametrize("name", BAD)
def test_a_bad_folder_is_refused_by_what_is_wrong_with_it(bad, name):
    with pytest.raises(ModelError) as error:
        load_model(str(bad / name.replace("'", "")))
    assert BAD[name][1] in str(error.value)


def test_the_command_line_refuses_bad_folders_without_importing_torch(bad):
    code = (
        "import sys\n"
        "sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from headscope.cli import main\n"
        "for folder in sys.argv[1:]:\n"
        "    for words in (['classify'], ['explain'], ['study', 'weights']):\n"
        "        sys.argv = ['headscope', *words, folder]\n"
        "        try:\n"
        "            main()\n"
        "        except SystemExit as stop:\n"
        "            print(stop.code)\n"
    )
    # what has no configuration may be a run for two of the three commands
    folders = [
        folder
        for folder in sorted(bad.iterdir())
        if (folder / "config.json").is_file() and folder.name != "no tokenizer"
    ]
    assert len(folders) > 5
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True
    )
    assert done.stdout.split() == ["2"] * 3 * len(folders), done.stderr
    assert "torch" not in done.stderr


def test_a_link_that_leads_nowhere_is_no_hub_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model").symlink_to("nowhere")
    with pytest.raises(ModelError, match="model is a link to 'nowhere', where nothing is"):
        load_model("model")


def no_bos(tokenizer, folder: Path, **special: str) -> PreTrainedTokenizerFast:
    """The same tokenizer without a BOS token, with another special token behind it."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in config.items() if "os_token" not in k} | special))
    found = AutoTokenizer.from_pretrained(folder)
    assert found.bos_token_id is None
    return found


def tiny_qwen(**tokens: int):
    config = tiny_config("qwen2")
    for name, token in tokens.items():
        setattr(config, name, token)
    return AutoModelForCausalLM.from_config(config)


def test_a_model_without_bos_is_read_with_the_one_of_its_configuration(tokenizer, tmp_path):
    backend = no_bos(tokenizer, tmp_path, eos_token="the")
    bos = tokenizer.bos_token_id
    tiny_qwen(bos_token_id=bos).save_pretrained(tmp_path)
    for model in (load_model(str(tmp_path)), open_model((tiny_qwen(bos_token_id=bos), backend))):
        assert (model.tokenizer.bos, model.tokenizer.bos_string) == (bos, "<|endoftext|>")
        assert any("no BOS token: <|endoftext|> is put before" in note for note in model.notes)
    assert not load_model(str(tmp_path), bos="<|endoftext|>").notes


def test_an_ordinary_token_is_no_bos_and_eos_serves(tokenizer, tmp_path):
    """A configuration's default is whatever number its class gives."""
    backend = no_bos(tokenizer, tmp_path, eos_token="<|endoftext|>")
    model = open_model((tiny_qwen(bos_token_id=5), backend))
    assert model.tokenizer.bos_string == "<|endoftext|>"
    backend = no_bos(tokenizer, tmp_path)
    with pytest.raises(ModelError, match="Name the token to use with --bos"):
        open_model((tiny_qwen(bos_token_id=5), backend))


def test_bloom_without_a_stated_context_is_read_at_the_length_that_is_asked(tokenizer, tmp_path):
    network = AutoModelForCausalLM.from_config(tiny_config("bloom"))
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["seq_length"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(str(tmp_path)).context == 2048
    assert load_model(str(tmp_path), longest=4096).context == 4096
