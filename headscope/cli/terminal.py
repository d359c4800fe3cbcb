"""Printing of the command line: nothing in it can steer a terminal, and what fails is one line.

SIGTERM ends a command as Ctrl-C does: what is done is kept, and a message says how to go on.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
import textwrap
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from headscope.errors import HeadscopeError, WriteError
from headscope.printing import one_line, visible

PIPE_WIDTH = 100
"""Columns of prose that goes to a pipe or a file, unless COLUMNS states others."""
TABLE_WIDTH = 160
"""Columns of a table that goes there, so that a row is one line for grep."""
BROKEN_PIPE = 128 + 13
"""The exit code of a program whose reader went away, as of one that SIGPIPE ended."""


class ReaderGoneError(Exception):
    """Nobody reads standard output any more, as after `| head`; no reason to say anything."""


def print_text(text: str) -> None:
    """Print lines for a person."""
    with _stdout():
        print(harmless(text))


def print_folded(text: str) -> None:
    """Print prose for a person, no line wider than the terminal, or than `PIPE_WIDTH` elsewhere."""
    print_text(folded(harmless(text), output_width(PIPE_WIDTH)))


def output_width(piped: int) -> int:
    """Columns of the terminal; elsewhere those that COLUMNS states, or `piped`."""
    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    stated = os.environ.get("COLUMNS", "")
    return int(stated) if stated.isdecimal() and int(stated) > 0 else piped


def folded(text: str, width: int) -> str:
    """Text with lines of at most so many characters; what goes on is indented by two more.

    >>> print(folded("  yes mass: 0.93 of its attention", 20))
      yes mass: 0.93 of
        its attention
    """
    lines = []
    # lines keep their own indent, up to half of the width
    for line in text.split("\n"):
        words = line.lstrip(" ")
        indent = min(len(line) - len(words), width // 2)
        first, others = " " * indent, " " * (indent + 2)
        lines.append(
            textwrap.fill(
                words,
                width,
                initial_indent=first,
                subsequent_indent=others,
                break_on_hyphens=False,
            )
        )
    return "\n".join(lines)


def put(text: str) -> None:
    """Print a table for another program, byte by byte; a terminal sees it without controls."""
    with _stdout():
        print(harmless(text) if sys.stdout.isatty() else text, end="")


def print_rich(what: object) -> None:
    """Print tables and text by rich: in a pipe prose is as wide as elsewhere, and tables wider."""
    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.table import Table

    # rich itself would end the program, and silently, where a pipe closes: it draws into memory.
    # A pipe has no width but COLUMNS. Names and tokens are not markup
    seen, buffer = sys.stdout.isatty(), io.StringIO()
    width = output_width(TABLE_WIDTH)
    console = Console(file=buffer, force_terminal=seen, width=width, markup=False)
    for block in _blocks(what):
        block_width = width if isinstance(block, Table) else output_width(PIPE_WIDTH)
        parts = console.render(block, console.options.update(width=block_width))
        safe = [Segment(harmless(part.text), part.style, part.control) for part in parts]
        console.print(Segments(safe), end="", soft_wrap=True)
    with _stdout():
        print(buffer.getvalue(), end="")


def _blocks(what: Any) -> Iterator[Any]:
    """The tables and texts of what rich is to print, one after the other."""
    from rich.console import Group
    from rich.text import Text

    if isinstance(what, Group):
        for part in what.renderables:
            yield from _blocks(part)
    else:
        yield Text(what) if isinstance(what, str) else what


def warn(text: str) -> None:
    """Print lines for a person on standard error."""
    with suppress(OSError):  # the exit code remains
        print(harmless(text), file=sys.stderr)


def message(line: str) -> None:
    """Print a message on one line of standard error, also if a file's name has line ends."""
    warn(f"headscope: {one_line(line)}")


def message_listener(quiet: bool) -> Callable[[str], None]:
    """The function that gets a command's messages: lines on stderr; nothing if quiet."""
    return (lambda _: None) if quiet else (lambda line: warn(one_line(line)))


def harmless(text: str) -> str:
    r"""Text without what steers a terminal or turns its direction; line ends stay.

    >>> harmless("a\x1b[2Jb")
    'a⟨1b⟩[2Jb'
    """
    return "".join(
        visible(char) if unicodedata.category(char) in _STEERING and char != "\n" else char
        for char in text
    )


_STEERING = ("Cc", "Cf", "Zl", "Zp")


def ready() -> None:
    """Put the streams right before anything is printed.

    Raises:
        HeadscopeError: there is no standard output.
    """
    if sys.stderr is None:  # else the next file to be opened would take its number, and its text
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for good
    if sys.stdout is None:
        raise HeadscopeError(
            "standard output is closed, and results go there; send it to a file or to /dev/null"
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # file names that are not UTF-8, and terminals that are not, must not end in a traceback
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Have the system take what was printed, or say why it does not.

    Raises:
        ReaderGoneError: nobody reads it any more.
        WriteError: it cannot be written, as on a full disk.
    """
    with _stdout():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def _stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # what is left in the buffer would fail once more, and loudly, as Python ends
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            raise ReaderGoneError from error
        reason = error.strerror or error
        raise WriteError(f"standard output cannot be written: {reason}") from error


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
    # Python takes signals in the main thread alone
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    # a second signal within two seconds would stop the writing of what is kept
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
