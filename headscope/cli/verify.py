"""`headscope verify`: a run beside the literature."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Device, Overwrite, Picture, Run, Source, Table
from headscope.cli.terminal import print_rich


@command(
    COMPARE,
    "headscope verify runs/gpt2",
    "headscope verify runs/my-gpt2 --as gpt2-small --no-measure",
)
def verify(
    run: Run,
    published: Annotated[
        str | None, typer.Option("--as", help="The published name, e.g. gpt2-small.")
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Run the model on the published stimulus, if it is at hand.")
    ] = True,
    scores: Annotated[
        Path | None,
        typer.Option(help="A CSV of published scores: model,revision,metric,layer,head,value."),
    ] = None,
    related: Annotated[
        Path | None,
        typer.Option(
            help="With --scores: what headscope weights --table related wrote of the model, for "
            "published lists of heads that make words of words."
        ),
    ] = None,
    out: Table = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    source: Source = None,
) -> None:
    """Compare a run with published heads and scores of the same model."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.validation.verify import verify as compare
    from headscope.studies.validation.verify_view import verification_lines

    found = compare(
        run,
        model=published,
        measure=measure,
        scores=scores,
        related=related,
        device=device,
        source=source,
    )
    files = write_study(found, out, figure, overwrite=overwrite)
    print_rich(verification_lines(found))
    say_written(files)
    if not found.holds:
        raise typer.Exit(1)
