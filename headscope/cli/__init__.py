"""The command line. A command parses, calls one library function, and prints or writes.

Heavy imports happen inside the commands, so that `headscope --help` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import sys

from headscope.cli.app import app
from headscope.cli.terminal import BROKEN_PIPE, ReaderGoneError, flush, ready, warn
from headscope.errors import HeadscopeError

# each module adds its command to the application, in the order of `--help`
from headscope.cli import classify  # isort: skip  # noqa: F401
from headscope.cli import sweep  # isort: skip  # noqa: F401
from headscope.cli import languages  # isort: skip  # noqa: F401
from headscope.cli import weights  # isort: skip  # noqa: F401
from headscope.cli import anatomy  # isort: skip  # noqa: F401
from headscope.cli import heads  # isort: skip  # noqa: F401
from headscope.cli import why  # isort: skip  # noqa: F401
from headscope.cli import show  # isort: skip  # noqa: F401
from headscope.cli import report  # isort: skip  # noqa: F401
from headscope.cli import atlas  # isort: skip  # noqa: F401
from headscope.cli import gallery  # isort: skip  # noqa: F401
from headscope.cli import headvis  # isort: skip  # noqa: F401
from headscope.cli import serve  # isort: skip  # noqa: F401
from headscope.cli import models  # isort: skip  # noqa: F401
from headscope.cli import data  # isort: skip  # noqa: F401
from headscope.cli import compare  # isort: skip  # noqa: F401
from headscope.cli import emergence  # isort: skip  # noqa: F401
from headscope.cli import redundancy  # isort: skip  # noqa: F401
from headscope.cli import verify  # isort: skip  # noqa: F401
from headscope.cli import calibrate  # isort: skip  # noqa: F401
from headscope.cli import ablate  # isort: skip  # noqa: F401
from headscope.cli import prune  # isort: skip  # noqa: F401
from headscope.cli import streaming  # isort: skip  # noqa: F401
from headscope.cli import explain  # isort: skip  # noqa: F401
from headscope.cli import directions  # isort: skip  # noqa: F401
from headscope.cli import collapse  # isort: skip  # noqa: F401

__all__ = ["app", "main"]

OBJECTS = 10_000
"""New objects after which Python looks for garbage among the young; its own number is 700."""


def main() -> None:
    """Run the command line; what a user can put right ends with one message and exit code 2."""
    # importing torch and transformers makes a million objects that stay: looking through them for
    # garbage on the way, and once more at the end, took a third of the seconds of a short command
    gc.set_threshold(OBJECTS)
    atexit.register(gc.freeze)
    try:
        ready()
        try:
            app()
        finally:
            flush()
    except ReaderGoneError:
        sys.exit(BROKEN_PIPE)
    except HeadscopeError as error:
        warn(f"headscope: {error}".replace("\n", "↵"))  # a file may be called so; one line it is
        sys.exit(2)
