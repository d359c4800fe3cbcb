"""Limits for input that once took minutes or gigabytes: far above what a sound reader needs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 10
TIMES = int(os.environ.get("FUZZ", "1"))
"""Multiple of the bad input that tests try, which is always the same; `make fuzz` sets it."""


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
