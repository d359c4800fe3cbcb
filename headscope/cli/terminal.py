"""What the command line prints: nothing in it can steer a terminal, and what fails is one line."""

from __future__ import annotations

import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from headscope.corpus.visible import visible
from headscope.errors import HeadscopeError, WriteError

BROKEN_PIPE = 128 + 13
"""The exit code of a program whose reader went away, as of one that SIGPIPE ended."""


class ReaderGoneError(Exception):
    """Nobody reads standard output any more, as after `| head`; no reason to say anything."""


def say(text: str) -> None:
    """Print lines for a person."""
    with _stdout():
        print(harmless(text))


def put(text: str) -> None:
    """Print a table for another program, byte by byte; a terminal sees it without controls."""
    with _stdout():
        print(harmless(text) if sys.stdout.isatty() else text, end="")


def print_rich(what: object) -> None:
    """Print a table or text by rich."""
    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.text import Text

    # rich itself would end the program, and silently, where a pipe closes: it draws into memory.
    # A pipe has no width: do not fold rows for it. Names and tokens are no markup
    seen, drawn = sys.stdout.isatty(), io.StringIO()
    console = Console(file=drawn, force_terminal=seen, width=None if seen else 160, markup=False)
    parts = console.render(Text(what) if isinstance(what, str) else what)  # type: ignore[arg-type]
    safe = [Segment(harmless(part.text), part.style, part.control) for part in parts]
    console.print(Segments(safe), end="", soft_wrap=True)
    with _stdout():
        print(drawn.getvalue(), end="")


def warn(text: str) -> None:
    """Print lines for a person on standard error."""
    with suppress(OSError):  # where nobody can be told, the exit code says it
        print(harmless(text), file=sys.stderr)


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
