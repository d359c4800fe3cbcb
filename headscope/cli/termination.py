"""SIGTERM ends a command as Ctrl-C does: what is done is kept, and a message says how to go on."""

from __future__ import annotations

import signal
import threading
import time

INTERRUPTED = 128 + 2
"""The exit code of a program that Ctrl-C ended."""
TERMINATED = 128 + 15
"""The exit code of a program that SIGTERM ended."""
AGAIN = 2.0
"""Seconds in which another SIGTERM says nothing new: `timeout` sends two, and what is done is being
kept meanwhile."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM, which is taken as Ctrl-C is."""


def catch_termination() -> None:
    """Have SIGTERM raise a `TerminatedError`, unless something else is done about it already."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    last = -AGAIN

    def stop(number: int, frame: object) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= AGAIN:
            last = now
            raise TerminatedError

    signal.signal(signal.SIGTERM, stop)


def stop_code(stop: BaseException) -> int:
    """The exit code of a command that was interrupted, by what interrupted it."""
    error: BaseException | None = stop
    while error is not None:
        if isinstance(error, TerminatedError):
            return TERMINATED
        error = error.__cause__ or error.__context__
    return INTERRUPTED
