"""`headscope heads`: the heads of a run as a list."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import LOOK, command
from headscope.cli.options import Format, Printed, Run
from headscope.cli.terminal import print_rich, put


@command(
    LOOK,
    "headscope heads runs/mini --type induction",
    "headscope heads runs/mini --format csv",
)
def heads(
    run: Run,
    type: Annotated[
        str | None,
        typer.Option(
            help="Only heads with this tag, or unclassified, or 'not identifiable'.",
            autocompletion=complete.types,
        ),
    ] = None,
    format: Printed = Format.table,
) -> None:
    """List the heads of a run, the strongest first."""
    from headscope.api import load
    from headscope.evidence.undecided import undecided
    from headscope.runs.listing import list_heads, write_heads
    from headscope.views.summary import head_lines

    loaded = load(run)
    chosen = list_heads(loaded, type)
    if format is Format.table:
        untold = undecided(loaded.heads, loaded.evidence)["said"]
        print_rich(head_lines(chosen, untold, loaded.stacks))
    else:
        put(write_heads(chosen, format.value))
