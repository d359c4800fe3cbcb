"""From a name on the hub to a run, by the hub's own client and real HTTP on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope import cli
from headscope.corpus.shipped import mini_folder
from headscope.errors import ModelError
from headscope.models import locate as locate_module
from headscope.models.load import load_model
from headscope.models.locate import locate
from tests.helpers.models import save_model
from tests.models.hub_server import Hub, commit_of, serve_hub, use

GPT2, PYTHIA, BINARY = "openai-community/gpt2", "EleutherAI/pythia-70m", "someone/pickled"
DEAD = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, dict[str, Path]]:
    """GPT-2's layout in one file, GPT-NeoX's in parts at two steps, and a pickle."""
    root, words = tmp_path_factory.mktemp("hub"), AutoTokenizer.from_pretrained(mini_folder())
    gpt2 = save_model("gpt2", words, root / "gpt2")
    (gpt2 / "pytorch_model.bin").write_bytes(b"a pickle")
    shutil.copy(gpt2 / "model.safetensors", gpt2 / "consolidated.safetensors")
    steps = {}
    for revision, spread in (("main", 0.4), ("step1000", 0.2)):
        whole = save_model("gpt_neox", words, root / revision / "whole", spread=spread)
        steps[revision] = Path(shutil.copytree(whole, root / revision / "parts"))
        (steps[revision] / "model.safetensors").unlink()
        network = AutoModelForCausalLM.from_pretrained(whole)
        network.save_pretrained(steps[revision], max_shard_size="60KB")
    binary = Path(shutil.copytree(root / "gpt2", root / "binary"))
    for weights in binary.glob("*.safetensors"):
        weights.unlink()
    return {GPT2: {"main": gpt2}, PYTHIA: steps, BINARY: {"main": binary}}


@pytest.fixture
def hub(models, tmp_path, monkeypatch) -> Iterator[Hub]:
    with serve_hub() as hub:
        hub.models = models
        use(hub.url, monkeypatch, tmp_path / "cache")
        monkeypatch.setattr(locate_module, "TIMEOUT", 0.5)
        yield hub


def test_the_command_reads_gpt2_from_the_hub_that_the_environment_names(
    hub, models, keys_file, tmp_path
):
    """The command runs in a process of its own, as for users."""
    words = ["classify", GPT2, "--corpus", keys_file, "--types", "positional", "-q"]
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "headscope", *map(str, words), "--out", str(tmp_path / "run")],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["model"]
    assert (stored["name"], stored["revision"]) == (GPT2, commit_of(models[GPT2]["main"]))
    weights = (models[GPT2]["main"] / "model.safetensors").read_bytes()
    assert stored["weights_sha256"] == {"model.safetensors": sha256(weights).hexdigest()}


def test_a_revision_in_parts_is_read_and_offline_read_again(
    hub, models, keys_file, tmp_path, monkeypatch
):
    options = {"types": ["positional"], "revision": "step1000"}
    run = hs.classify(PYTHIA, keys_file, out=tmp_path / "run", **options)
    parts = [name for name in run.info["model"]["weights_sha256"] if "-of-" in name]
    assert len(parts) > 1
    assert run.info["model"]["revision"] == commit_of(models[PYTHIA]["step1000"])
    plain = hs.classify(models[PYTHIA]["step1000"], keys_file, types=["positional"])
    assert run.evidence.equals(plain.evidence)

    use(DEAD, monkeypatch, tmp_path / "cache")
    again = hs.classify(PYTHIA, keys_file, **options)
    assert again.info["model"] == run.info["model"]
    assert again.evidence.equals(run.evidence)
    with pytest.raises(ModelError, match=PYTHIA):
        load_model(PYTHIA)  # main was never fetched


def test_weights_are_fetched_in_one_format(hub):
    names = {file.name for file in locate(GPT2, None)[0].iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert names.isdisjoint({"pytorch_model.bin", "consolidated.safetensors"})


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json"])
def test_a_file_with_another_checksum_than_the_hub_states_is_refused(hub, models, file, tmp_path):
    hub.damaged = file
    for _ in range(2):  # also when it is in the cache
        with pytest.raises(ModelError, match=file) as refusal:
            load_model(GPT2)
    digest = sha256((models[GPT2]["main"] / file).read_bytes()).hexdigest()
    stored = next((tmp_path / "cache").rglob(f"blobs/{digest}"))
    assert str(stored) in str(refusal.value)
    hub.damaged = ""
    stored.unlink()
    assert load_model(GPT2).layers == 2


FAULTS = {
    "no such model": ("nobody/none", {}, "nobody/none is not a local folder.*404"),
    "no such revision": (f"{GPT2} --revision step7", {}, f"{GPT2} at step7 is not .*404"),
    "gated": (PYTHIA, {"gated": PYTHIA}, f"{PYTHIA} is not .*gated"),
    "down": (GPT2, {"status": 503}, ".*503.*mini, a local folder"),
    "silent": (GPT2, {"is_silent": True}, ".*cannot be reached.*timed out.*mini, a local folder"),
    "unreachable": (GPT2, {"url": DEAD}, "(?!.*Errno).*cannot be reached.*refused.*mini, a local"),
    "pickles alone": (BINARY, {}, ".*never loads pickles"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_hub_ends_the_command_with_one_line_and_code_2(
    fault, hub, monkeypatch, tmp_path, capsys
):
    words, damage, message = FAULTS[fault]
    for name, value in damage.items():
        setattr(hub, name, value)
    use(hub.url, monkeypatch, tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["headscope", "classify", *words.split(), "--quiet"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert re.fullmatch(f"headscope: {message}.*\\n", capsys.readouterr().err)
    assert not (tmp_path / "runs").exists()
