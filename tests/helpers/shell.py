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
MAIN = "from headscope.cli import main; main()"
HEAVY = ("headscope.classification", "headscope.models.load")
"""Neither the command line itself nor what it prints with: that reads the environment."""


def headscope(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `headscope` with these words; its exit code and all that it printed."""
    words = ["-c", *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        streams = [str(Path(folder) / name) for name in ("stdout", "stderr")]
        code = forked(
            MAIN, words, streams, {"NO_COLOR": "1", "COLUMNS": "100"}, cwd=cwd or Path.cwd()
        )
        out, err = (Path(stream).read_text(encoding="utf-8") for stream in streams)
    return subprocess.CompletedProcess(words, code, out, err)


def forked(
    code: str, argv: list[str], streams: list[str], environment: dict[str, str], *, cwd: Path
) -> int:
    """Run Python code; the exit code, or that of a killed process where it takes too long.

    Args:
        code: what `python -c` would be given.
        argv: its `sys.argv`.
        streams: the files, or terminals, that it writes standard output and errors to.
        environment: what is added to this process's.
        cwd: the folder that it runs in.
    """
    asked = {
        "code": code,
        "argv": argv,
        "streams": streams,
        "cwd": str(cwd),
        "environment": {**os.environ, **environment},
    }
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
    code = "from tests.helpers.shell import serve\nexec(serve())"
    server = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    atexit.register(server.communicate)
    return server


def serve() -> str:
    """Fork a process for each line that comes in; the code to run in such a process, else none."""
    for name in HEAVY:
        import_module(name)
    gc.freeze()  # else each process would go through all of it, and copy it by that
    for line in sys.stdin:
        child = os.fork()
        if not child:
            asked = json.loads(line)
            _become(asked)
            return asked["code"]
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return ""


def _become(asked: dict[str, object]) -> None:
    """Take on the streams, the folder, the environment and the words of the command."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOCTTY
    names = [(os.devnull, os.O_RDONLY), *((name, flags) for name in asked["streams"])]
    for number, (name, how) in enumerate(names):
        opened = os.open(name, how)
        os.dup2(opened, number)
        os.close(opened)
    # those of the process that forks know what they wrote to: a file, or a terminal
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    errors = {"encoding": "utf-8", "errors": "backslashreplace"}
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False, **errors)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = asked["argv"]
