"""Loading a model starts no process and asks no network: a child that does so tells on itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.models.every_layout import save_tiny

CHILD = """
import sys
import headscope.models.engines.choose, headscope.models.engines.fused  # what importing does is not asked
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
LAYOUTS = ("llama", "mistral", "bloom", "gemma3", "phi4_multimodal", "git", "rwkv", "mamba")


@pytest.fixture(scope="module")
def ended(tokenizer, tmp_path_factory) -> list[str]:
    """What the child says of each layout, twice: by `auto` and by `lens`."""
    folders = [tmp_path_factory.mktemp(layout) for layout in LAYOUTS]
    for layout, folder in zip(LAYOUTS, folders, strict=True):
        save_tiny(layout, tokenizer, folder)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, folders)], capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    *lines, last, started = done.stdout.splitlines()
    assert last == "ALL", done.stdout + done.stderr
    assert started.startswith("STARTED os.system")
    return lines


def test_no_process_is_started_and_no_network_asked_while_a_model_loads(ended):
    assert [line for line in ended if line.startswith("STARTED")] == []
    assert len(ended) == 2 * len(LAYOUTS)


def test_what_also_sees_is_refused_before_transformerlens_would_install_a_package(ended):
    for layout in ("gemma3", "phi4_multimodal", "git"):
        by_itself, by_lens = ended[2 * LAYOUTS.index(layout) :][:2]
        refused = [by_lens]
        if layout == "git":
            refused.append(by_itself)
        else:
            assert by_itself == "ENDED fused"  # its text half needs no TransformerLens
        for line in refused:
            assert "reads more than text" in line
            assert "TransformerLens would install packages" in line
