"""`headscope data`: what ships."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli.app import LOOK, command
from headscope.cli.terminal import print_rich


@command(LOOK, "headscope data", "headscope data --check")
def data(
    check: Annotated[bool, typer.Option("--check", help="Count and check every file.")] = False,
) -> None:
    """List what ships with headscope and where it lies."""
    from headscope.studies.validation.stock import check_all, check_table, stock_table

    if not check:
        print_rich(stock_table())
        return
    checks = check_all()
    print_rich(check_table(checks))
    if not all(each.holds for each in checks):
        raise typer.Exit(1)
