"""Loading a model starts no process and asks no network: a child that does so tells on itself."""

from __future__ import annotations

import subprocess
import sys

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


def test_no_process_is_started_and_no_network_asked_while_a_model_loads(
    tokenizer, tmp_path_factory
):
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
    assert [line for line in lines if line.startswith("STARTED")] == []
    assert len(lines) == 2 * len(LAYOUTS)
