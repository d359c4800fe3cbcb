"""`headscope heads`: the heads of a run as a list."""

from __future__ import annotations

from pathlib import Path
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
    "headscope heads runs/mini --legs",
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
    legs: Annotated[
        bool,
        typer.Option(
            "--legs",
            help="Instead, by type: how many heads look, write, and break when they stop to look; "
            "as csv or json a row per head and type.",
        ),
    ] = False,
    format: Printed = Format.table,
) -> None:
    """List the heads of a run, the strongest first.

    A head without a tag comes with "no tag, closest to" and the relation that it comes closest to.
    """
    if legs:
        _print_legs(run, type, format)
        return
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


def _print_legs(run: Path, type: str | None, format: Format) -> None:
    from headscope.api import load
    from headscope.errors import ChoiceError
    from headscope.evidence.legs import legs
    from headscope.runs.listing import write_heads
    from headscope.views.legs import legs_lines

    loaded = load(run)
    table = legs(loaded)
    if type is not None:
        if type not in set(table["type"]):
            raise ChoiceError("type that a head is tagged with", type, sorted(set(table["type"])))
        table = table[table["type"] == type]
    if format is Format.table:
        print_rich(legs_lines(table, loaded))
    else:
        put(write_heads(table, format.value))
