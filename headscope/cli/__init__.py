"""The command line. A command parses, calls one library function, and prints or writes.

Heavy imports happen inside the commands, so that `headscope --help` answers at once.
"""

from __future__ import annotations

import atexit
import gc
import sys

from headscope.cli.app import app, position
from headscope.cli.study_command import add_studies
from headscope.cli.terminal import (
    BROKEN_PIPE,
    ReaderGoneError,
    catch_termination,
    flush,
    message,
    ready,
)
from headscope.errors import HeadscopeError
from headscope.progress import announced_costs

# modules of commands; those of studies join in the order of their table
from headscope.cli import classify, look, study_bodies  # isort: skip  # noqa: F401

add_studies()
app.registered_commands.sort(key=lambda command: position(command.name))

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
        catch_termination()
        try:
            with announced_costs(message):
                app()
        finally:
            flush()
    except ReaderGoneError:
        sys.exit(BROKEN_PIPE)
    except HeadscopeError as error:
        message(str(error))
        sys.exit(2)
