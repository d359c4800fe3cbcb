"""`headscope headvis`: a run in the data format of the HeadVis frontend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import LOOK, command
from headscope.cli.files import say_written
from headscope.cli.options import Device, OtherText, Quiet, Run, Seed, Source
from headscope.cli.terminal import print_rich


@command(
    LOOK,
    "headscope headvis runs/mini --out headvis/data",
    "headscope headvis runs/mini --heads L1H0,L5H3 --sequences 100 --overwrite",
)
def headvis(
    run: Run,
    out: Annotated[
        Path, typer.Option(help="The folder, new or empty; HeadVis looks for one named data.")
    ] = Path("data"),
    heads: Annotated[
        str, typer.Option(help="all, tagged, or names such as L5H1,L6H9; about 5 MB each.")
    ] = "all",
    sequences: Annotated[int, typer.Option(help="Sequences of text to read at most.")] = 500,
    max_length: Annotated[int, typer.Option(help="Tokens of a sequence at most.")] = 256,
    points: Annotated[
        int, typer.Option(help="Most points of a head's cloud of vectors; 0 for no clouds.")
    ] = 2_000,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an export in that folder; other files stay."),
    ] = False,
    seed: Seed = 0,
    device: Device = "auto",
    source: Source = None,
    corpus: OtherText = None,
    quiet: Quiet = False,
) -> None:
    """Write the data folder that the HeadVis frontend shows: metrics, sequences, clouds."""
    from headscope.runs.site import HEADVIS, check_site

    check_site(out, overwrite=overwrite, site=HEADVIS)
    from headscope.studies.headvis.run import headvis as export
    from headscope.studies.headvis.view import headvis_lines
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet) as advance:
        found = export(
            run,
            out,
            heads=heads,
            sequences=sequences,
            max_length=max_length,
            points=points,
            overwrite=overwrite,
            seed=seed,
            device=device,
            source=source,
            corpus=corpus or (),
            progress=advance,
        )
    print_rich(headvis_lines(found))
    say_written([out])
