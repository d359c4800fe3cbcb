"""Printed text: untrusted characters made visible, and lines above progress bars."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

_bars_wanted = ContextVar("bars_wanted", default=True)


def visible(token: str) -> str:
    r"""A token as text that can be seen and does no harm: no control or direction marks.

    >>> visible("a b"), visible("\n"), visible("\x1b"), visible("")
    ('a b', '↵', '⟨1b⟩', '∅')
    """
    characters = []
    for char in token:
        if char == "\n":
            characters.append("↵")
        elif char == "\t":
            characters.append("⇥")
        elif not char.isprintable() and char != " ":
            characters.append(f"⟨{ord(char):x}⟩")
        else:
            characters.append(char)
    return "".join(characters) or "∅"


def one_line(name: object) -> str:
    r"""A path, a name or a message on one line, without what steers a terminal.

    >>> one_line("my\nmodel"), one_line("model"), one_line("")
    ('my↵model', 'model', '')
    """
    text = str(name)
    return text if text.isprintable() else visible(text)


def above_bars() -> AbstractContextManager[Any]:
    """Within it lines can be printed to standard error; bars go away before and come back after."""
    if "tqdm" not in sys.modules:
        return nullcontext()
    from tqdm import tqdm

    lines: AbstractContextManager[Any] = tqdm.external_write_mode(file=sys.stderr)
    return lines


def print_above_bars(line: str) -> None:
    """Print a line to standard error, wherever that goes."""
    with above_bars():
        print(line, file=sys.stderr, flush=True)


@contextmanager
def no_other_bars() -> Iterator[None]:
    """Within it libraries that headscope calls draw no bars either: the user wants none."""
    token = _bars_wanted.set(False)
    try:
        yield
    finally:
        _bars_wanted.reset(token)


def are_bars_wanted() -> bool:
    """True if libraries that headscope calls may draw bars on standard error."""
    return _bars_wanted.get()
