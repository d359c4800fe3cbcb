"""Limits for input that once took minutes or gigabytes: far above what a sound reader needs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 10
MEGABYTES = 1000


class Hang(BaseException):
    """No exception that a reader might take for a file that cannot be read."""


@contextmanager
def no_hang(seconds: int = SECONDS) -> Iterator[None]:
    """End what takes longer."""

    def stop(*_: object) -> None:
        raise Hang(f"still not done after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def in_little_memory(code: str, *arguments: object) -> str:
    """What a program of its own prints when it has a gigabyte and half a minute."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({MEGABYTES * 10**6},) * 2)"
    done = subprocess.run(
        [sys.executable, "-c", f"{limit}\n{code}", *map(str, arguments)],
        capture_output=True, text=True, timeout=3 * SECONDS, check=False, env={"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
