"""`headscope directions`: why a head looks where it looks."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli.app import CAUSES, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import (
    Device,
    Head,
    OtherText,
    Overwrite,
    Picture,
    Run,
    Seed,
    Source,
    Table,
)
from headscope.cli.terminal import print_rich


@command(
    CAUSES,
    "headscope directions runs/mini L5H1",
    "headscope directions runs/mini L5H1 --relation induction/repeat --figure directions.pdf",
)
def directions(
    run: Run,
    head: Head,
    relation: Annotated[
        str | None, typer.Option(help="A relation, e.g. induction/repeat; else its best tag.")
    ] = None,
    out: Table = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    source: Source = None,
    corpus: OtherText = None,
) -> None:
    """Say by how many directions a head tells a relation's targets from its controls."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.directions.run import directions as find
    from headscope.studies.directions.view import directions_lines

    where = corpus or ()
    found = find(
        run, head, relation=relation, corpus=where, seed=seed, device=device, source=source
    )
    files = write_study(found, out, figure, overwrite=overwrite)
    print_rich(directions_lines(found))
    say_written(files)
