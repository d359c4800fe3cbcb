"""A terminal that keeps what is written to it."""

from __future__ import annotations

import io
import sys

import pytest


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal; in the test itself, as pytest puts its own there before it."""
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    return stderr
