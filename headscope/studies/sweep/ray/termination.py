"""SIGTERM stays the program's own while Ray runs in its process, and Ray ends without a word."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STDERR = 2
"""The number of the file that C++ code writes its errors to."""


@contextmanager
def own_termination() -> Iterator[None]:
    """Put the program's handler of SIGTERM back after Ray was started or shut down.

    Ray's core installs a handler for faults that takes SIGTERM for one of them: it prints the
    stack of the C++ code and aborts, without a word of what was kept. Ray's shutdown sets the
    signal back to the system's default. What ends in `sys.exit` by one of Ray's handlers in Python
    meanwhile goes to the program's handler instead.
    """
    if threading.current_thread() is not threading.main_thread():  # no other may set handlers
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        _put_back(before)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        _put_back(before)


@contextmanager
def silent_core() -> Iterator[None]:
    """Nothing reaches standard error meanwhile, not even from Ray's C++ code.

    As it shuts down with work left over, its core says of each part that it cannot say so.
    """
    sys.stderr.flush()
    before, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDERR)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(before, STDERR)
        os.close(before)


def _put_back(before: object) -> None:
    if before is not None:  # which no handler of Python's is
        signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
