"""The way from a name on the hub to a run, through the hub's own client and real HTTP on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants, get_session, set_client_factory
from huggingface_hub.utils import _http
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope import cli
from headscope.corpus.shipped import mini_folder
from headscope.errors import ModelError
from headscope.models import bounded_retries
from headscope.models import locate as locate_module
from headscope.models.load import load_model
from headscope.models.locate import locate
from tests.helpers.hub import Fault, Hub, serve_hub, use
from tests.helpers.models import save_model
from tests.helpers.terminal import in_terminal

GPT2, PYTHIA, BINARY = "openai-community/gpt2", "EleutherAI/pythia-70m", "someone/pickled"
LARGE = r"/[0-9a-f]{64}$"
"""The path of a large file in the storage."""
DEAD = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, dict[str, Path]]:
    """GPT-2's layout in one file among other formats, and GPT-NeoX's in parts, at two steps."""
    root, words = tmp_path_factory.mktemp("hub"), AutoTokenizer.from_pretrained(mini_folder())
    gpt2 = save_model("gpt2", words, root / "gpt2")
    (gpt2 / "onnx").mkdir()
    (gpt2 / "onnx" / "config.json").write_text("{}")
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
        hub.models, hub.renamed = models, {"gpt2": GPT2}
        use(hub, monkeypatch, tmp_path / "cache")
        yield hub


@pytest.fixture
def impatient(monkeypatch) -> None:
    """Retries end within a second."""
    monkeypatch.setattr(bounded_retries, "PATIENCE", 0.5)
    monkeypatch.setattr(bounded_retries, "TIMEOUT", 0.3)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.3)


def no_network(hub: Hub, monkeypatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", DEAD)
    close_session()
    hub.requests.clear()


def test_the_command_reads_gpt2_from_the_hub_that_the_environment_names(
    hub, models, keys_file, tmp_path
):
    """In a process of its own, as users do."""
    words = ["classify", "gpt2", "--corpus", keys_file, "--types", "positional", "--no-twin", "-q"]
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "headscope", *map(str, words), "--out", str(tmp_path / "run")],
        env=os.environ | environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    stored = json.loads((tmp_path / "run" / "run.json").read_text())["model"]
    assert stored["name"] == "gpt2"
    assert stored["revision"] == hub.commit(GPT2, "main")
    weights = (models[GPT2]["main"] / "model.safetensors").read_bytes()
    assert stored["weights_sha256"] == {"model.safetensors": sha256(weights).hexdigest()}


def test_a_revision_in_parts_is_read_and_offline_read_again(
    hub, models, keys_file, tmp_path, monkeypatch
):
    options = {"types": ["positional"], "twin": False, "revision": "step1000"}
    run = hs.classify(PYTHIA, keys_file, out=tmp_path / "run", **options)
    parts = [name for name in run.info["model"]["weights_sha256"] if "-of-" in name]
    assert len(parts) > 1
    assert run.info["model"]["revision"] == hub.commit(PYTHIA, "step1000")
    assert run.info["model"]["revision"] != hub.commit(PYTHIA, "main")
    plain = hs.classify(models[PYTHIA]["step1000"], keys_file, types=["positional"], twin=False)
    assert run.evidence.equals(plain.evidence)

    no_network(hub, monkeypatch)
    again = hs.classify(PYTHIA, keys_file, **options)
    assert again.info["model"] == run.info["model"]
    assert again.evidence.equals(run.evidence)
    with pytest.raises(ModelError, match=r"'EleutherAI/pythia-70m' is no local folder, and the Hu"):
        load_model(PYTHIA)  # main was never fetched
    assert hub.requests == []


@pytest.mark.parametrize("progress", [False, True])
def test_the_hubs_bar_is_drawn_in_a_terminal_unless_progress_is_off(
    hub, keys_file, monkeypatch, progress
):
    terminal = in_terminal(monkeypatch)
    monkeypatch.setattr(locate_module, "BAR_SECONDS", 0)
    hs.classify("gpt2", keys_file, types=["positional"], twin=False, progress=progress)
    assert ("Fetching" in terminal.getvalue()) is progress
    assert (terminal.getvalue() == "") is not progress


def test_the_command_is_quiet_about_the_hub_too(hub, keys_file, monkeypatch, tmp_path):
    terminal = in_terminal(monkeypatch)
    monkeypatch.setattr(locate_module, "BAR_SECONDS", 0)
    words = ["why", "gpt2", "L0H0", "--corpus", str(keys_file), "--types", "positional", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["headscope", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, terminal.getvalue()) == (0, "")


def test_a_second_load_asks_for_the_commit_alone(hub, capsys):
    locate("gpt2", None)
    hub.requests.clear()
    folder, commit = locate("gpt2", None)
    assert commit == hub.commit(GPT2, "main")
    assert [path for _, path, _ in hub.requests if not path.startswith("/api/models/")] == []
    assert [path for _, path, _ in hub.requests if "/tree/" in path] == []
    names = {file.name for file in folder.iterdir()}
    assert names >= {"config.json", "model.safetensors", "tokenizer.json"}
    assert names.isdisjoint({"onnx", "pytorch_model.bin", "consolidated.safetensors"})
    assert capsys.readouterr().err == ""


def test_what_breaks_off_goes_on_where_it_broke(hub, models, monkeypatch, capsys):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.faults = [Fault(LARGE, cut=200_500, times=2)]
    folder, _ = locate("gpt2", None)
    sent = models[GPT2]["main"] / "model.safetensors"
    assert hub.asked(LARGE) == ["GET", "GET bytes=200000-"]
    assert sent.stat().st_size < 400_000, "the second answer is whole"
    assert (folder / "model.safetensors").read_bytes() == sent.read_bytes()
    assert "Error" not in capsys.readouterr().err, "what was mended is nothing to say"


def test_a_storage_that_always_sends_the_whole_file_is_no_harm(hub, models, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.faults = [
        Fault(LARGE, cut=200_500, times=1),
        Fault(LARGE, ignores_range=True),
    ]
    folder, _ = locate("gpt2", None)
    assert hub.asked(LARGE)[1] == "GET bytes=200000-"
    sent = models[GPT2]["main"] / "model.safetensors"
    assert (folder / "model.safetensors").read_bytes() == sent.read_bytes()


def test_the_users_token_stays_with_the_hub(hub):
    """The address of a large file is signed, and its host is none of the hub's."""
    sent: list[str] = []
    end = note_tokens(sent)
    locate("gpt2", None)
    end()
    assert "Bearer hf_of_the_user" in sent
    assert hub.told == []


def note_tokens(sent: list[str]) -> Callable[[], None]:
    """Note the token of every request of the client, until what is returned is called."""
    previous = _http._GLOBAL_CLIENT_FACTORY

    def noting() -> object:
        client = previous()
        client.event_hooks["request"].append(
            lambda request: sent.append(request.headers.get("Authorization", ""))
        )
        return client

    set_client_factory(noting)
    return lambda: set_client_factory(previous)


def test_a_short_wait_is_waited(hub, monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    hub.faults = [Fault(LARGE, status=429, headers={"Retry-After": "3"}, times=2)]
    assert locate("gpt2", None)[1] == hub.commit(GPT2, "main")
    assert slept == [4.0, 4.0]


WHOLE = r"'gpt2' is no local folder, and the Hugging Face hub "
FAULTS = {
    "no such model": ("nobody/none", None, "nobody/none: the hub has no such model, or shows it o"),
    "no such revision": (
        "gpt2 --revision step7", None,
        "gpt2: the hub has this model and no revision 'step7' of it; --revision takes a branch, a",
    ),
    "gated": (PYTHIA, None, f"{PYTHIA}: the hub asks for permission; log in with: hf auth login"),
    "no permission": (
        "gpt2", Fault("/api/models", status=401),
        WHOLE + r"answers 401 Unauthorized \(log in with: hf auth login\); mini, a local folder",
    ),
    "busy for an hour": (
        "gpt2", Fault(LARGE, status=429, headers={"Retry-After": "3600"}),
        WHOLE + "answers 429 Too Many Requests and asks to wait 3600 seconds; mini, a local folde",
    ),
    "busy at the door": (
        "gpt2", Fault("/api/models", status=429, headers={"RateLimit": '"api";r=0;t=142'}),
        WHOLE + "answers 429 Too Many Requests and asks to wait 142 seconds; mini, a local folder",
    ),
    "down": ("gpt2", Fault("config", status=503), WHOLE + "answers 503 Service Unavailable; mini"),
    "silent at the door": (
        "gpt2", Fault(r"/revision/", cut=3, stalls=True), WHOLE + r"cannot be reached \(timed out\)"
    ),
    "silent within a file": (
        "gpt2", Fault(LARGE, cut=1000, stalls=True), WHOLE + "sends nothing more; mini, a local f"
    ),
    "cut off again and again": (
        "gpt2", Fault(LARGE, cut=0), WHOLE + r"sends (a file that is not whole|nothing more)"
    ),
    "too short": (
        "gpt2", Fault(LARGE, content=b"short"),
        WHOLE + r"sends a file that is not whole \(Consistency check failed: file should be of s",
    ),
    "other weights": (
        "gpt2", Fault(LARGE, content=b"?" * 268_328),
        r"gpt2: model\.safetensors is not the file that the hub has: its checksum is [0-9a-f]{64} "
        r"and should be [0-9a-f]{64}\. Delete /.*/blobs/[0-9a-f]{64} and ask again",
    ),
    "another tokenizer": (
        "gpt2", Fault(r"/tokenizer_config\.json", content=b"{}" * 81 + b" "),
        r"gpt2: tokenizer_config\.json is not the file that the hub has: its checksum is [0-9a-f]{40}",
    ),
    "pickles alone": (
        BINARY, None, rf"{BINARY}: no \.safetensors file; headscope never loads pickles \(\.bin"
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_is_one_message_with_exit_code_2_and_no_run(
    fault, hub, impatient, monkeypatch, tmp_path, capsys
):
    words, damage, message = FAULTS[fault]
    hub.faults = [damage] if damage else []
    hub.gated = {PYTHIA} if fault == "gated" else set()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["headscope", "classify", *words.split(), "--quiet"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert re.fullmatch(f"headscope: {message}.*\\n", said), said
    assert not (tmp_path / "runs").exists()
    assert list((tmp_path / "cache").rglob("*.incomplete")) == []


def test_a_client_that_hangs_up_is_no_word_of_the_server_of_these_tests(hub, capsys):
    """Its words would stand among those that a test reads."""
    threads = set(threading.enumerate())
    host, port = hub.url.removeprefix("http://").split(":")
    for last in (False, False, False, True):
        with socket.create_connection((host, int(port))) as client:
            client.send(
                b"GET /api/models/nobody/none/revision/main HTTP/1.0\r\n\r\n" if last else b"GET "
            )
            if last:
                assert client.recv(1), "what hung up before has been taken"
            else:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    latest = time.monotonic() + 10
    while set(threading.enumerate()) - threads:
        assert time.monotonic() < latest, "the server still answers"
        time.sleep(0.01)
    assert capsys.readouterr().err == ""


def test_a_hub_that_fails_is_no_harm_to_what_was_fetched(hub, impatient):
    folder, commit = locate("gpt2", None)
    hub.faults = [Fault("/api/models", status=503)]
    assert locate("gpt2", None) == (folder, commit)
    hub.faults = [Fault("/api/models", status=429, headers={"Retry-After": "3600"})]
    assert locate("gpt2", None) == (folder, commit)


def test_after_a_broken_load_the_next_is_whole(hub, impatient):
    hub.faults = [Fault(LARGE, content=b"short")]
    with pytest.raises(ModelError, match="not whole"):
        load_model("gpt2")
    hub.faults = []
    assert load_model("gpt2").revision == hub.commit(GPT2, "main")


def test_half_a_model_in_the_cache_is_none(hub, impatient, monkeypatch):
    hub.faults = [Fault(LARGE, cut=0)]
    with pytest.raises(ModelError):
        locate("gpt2", None)
    no_network(hub, monkeypatch)
    with pytest.raises(ModelError, match=r"hub cannot be reached \(.*refused\)"):
        locate("gpt2", None)


def test_weights_that_the_disk_has_changed_are_refused(hub):
    weights = locate("gpt2", None)[0] / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.resolve().write_bytes(content)
    with pytest.raises(ModelError, match="is not the file that the hub has"):
        load_model("gpt2")
    weights.resolve().unlink()
    assert load_model("gpt2").revision == hub.commit(GPT2, "main")


def test_a_storage_out_of_reach_is_given_up_and_the_other_way_is_named(hub, monkeypatch):
    """Xet, whose client waits minutes by itself; the environment of the process is as before."""
    pytest.importorskip("hf_xet")
    hub.chunks = DEAD
    before = dict(os.environ)
    with pytest.raises(ModelError, match=r"and HF_HUB_DISABLE_XET=1 has them sent another way"):
        locate("gpt2", None)
    assert dict(os.environ) == before
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    assert locate("gpt2", None)[1] == hub.commit(GPT2, "main")


def test_a_users_own_client_of_the_hub_is_kept(hub):
    clients = []

    def own():
        clients.append(_http.default_client_factory())
        return clients[-1]

    set_client_factory(own)
    try:
        locate("gpt2", None)
        assert len(clients) == 1
        hooks = _http.default_client_factory().event_hooks
        assert len(get_session().event_hooks["request"]) == len(hooks["request"])
        assert len(clients) == 2
    finally:
        set_client_factory(_http.default_client_factory)
