"""`headscope why`: the reasons of a head's tags."""

from __future__ import annotations

from headscope.cli.app import LOOK, command
from headscope.cli.options import Head, Run
from headscope.cli.terminal import say


@command(LOOK, "headscope why runs/mini L5H1", "headscope why runs/mini 5.1")
def why(run: Run, head: Head) -> None:
    """Show each condition of a head's tags with its number, and the near misses."""
    from headscope.api import load

    say(load(run).why(head))
