"""The command, in a process of its own.

Most of the seconds of a small command are imports. Here they are paid once: a process that has
imported what is heavy, and done nothing else, waits and forks one process for each command.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Timer

SECONDS = 300
HEAVY = ("headscope.classification", "headscope.models.load")
"""Neither the command line itself nor what it prints with: that reads the environment."""


def headscope(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `headscope` with these words; its exit code and all that it printed."""
    words = ["-c", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        streams = [str(Path(folder) / name) for name in ("stdout", "stderr")]
        asked = {
            "argv": words,
            "streams": streams,
            "cwd": str(cwd or Path.cwd()),
            "environment": {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"},
        }
        code = _run(asked)
        out, err = (Path(stream).read_text(encoding="utf-8") for stream in streams)
    return subprocess.CompletedProcess(words, code, out, err)


def _run(asked: dict[str, object]) -> int:
    """The exit code; that of a killed process where it takes too long."""
    server = _server()
    if server.stdin is None or server.stdout is None:
        raise RuntimeError("the process that forks has no pipes")
    print(json.dumps(asked), file=server.stdin, flush=True)
    child = int(server.stdout.readline())
    clock = Timer(SECONDS, os.kill, (child, signal.SIGKILL))
    clock.start()
    try:
        return int(server.stdout.readline())
    finally:
        clock.cancel()


@cache
def _server() -> subprocess.Popen[str]:
    code = "from tests.helpers.shell import serve\nif serve():\n from headscope.cli import main\n main()"
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    atexit.register(server.communicate)
    return server


def serve() -> bool:
    """Fork a process for each line that comes in; True in a process that is to run a command."""
    for name in HEAVY:
        import_module(name)
    gc.freeze()  # else each process would go through all of it, and copy it by that
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
            return True
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return False


def _become(asked: dict[str, object]) -> None:
    """Take on the streams, the folder, the environment and the words of the command."""
    flags = os.O_WRONLY | os.O_CREAT
    names = [(os.devnull, os.O_RDONLY), *((name, flags) for name in asked["streams"])]
    for number, (name, how) in enumerate(names):
        opened = os.open(name, how)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["argv"]
