"""The one family of errors that headscope raises for its users.

Every message says what was asked, what came, and what would do. The command line prints it
on stderr and exits with code 2.
"""

from __future__ import annotations

from collections.abc import Iterable


class HeadscopeError(Exception):
    """Anything that a user can put right: the message says how."""


class ModelError(HeadscopeError):
    """A model cannot be found, loaded, or does not behave like a causal transformer."""


class CorpusError(HeadscopeError):
    """A corpus file cannot be read; the message names the file and the line."""


class PatternError(HeadscopeError):
    """Attention patterns from outside do not fit their document."""


class RunError(HeadscopeError):
    """A run folder is missing, damaged, or in the way."""


class RunStoppedError(KeyboardInterrupt):
    """A run was interrupted; the message says how to go on."""


class ShapeError(HeadscopeError, ValueError):
    """Sizes or tensors that do not fit together; the message gives the numbers of both."""


class ChoiceError(HeadscopeError):
    """A name that is none of the choices."""

    def __init__(self, what: str, asked: str, choices: Iterable[str]) -> None:
        super().__init__(f"no {what} named {asked!r}; choose from: {', '.join(choices)}")
