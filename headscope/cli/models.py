"""`headscope models`: how models are named."""

from __future__ import annotations

from headscope.cli.app import LOOK, command
from headscope.cli.terminal import print_rich


@command(LOOK, "headscope models")
def models() -> None:
    """Say which models headscope loads, and how to name them."""
    from headscope.views.families import describe_models

    print_rich(describe_models())
