"""`headscope calibrate`: how often tags are right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, PICTURES, check_targets, draw, say_written
from headscope.cli.options import Overwrite, Picture, Quiet
from headscope.cli.terminal import print_rich, warn
from headscope.runs.write import write_files


@command(
    COMPARE,
    "headscope calibrate --out planted.csv",
    "headscope calibrate mini --seeds 3",
)
def calibrate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Also try this architecture with random weights.", autocompletion=complete.models
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write each head's row to this CSV.")] = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    seeds: Annotated[int, typer.Option(help="Random initialisations of MODEL.")] = 5,
    quiet: Quiet = False,
) -> None:
    """Say how often tags are right, on models whose heads are known."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.validation.calibrate import calibrate as run_calibration
    from headscope.studies.validation.calibrate_view import planted_table, random_table

    tell = (lambda _: None) if quiet else warn
    found = run_calibration(model, seeds=seeds, tell=tell)
    files = {out: found.csv().encode("utf-8")} if out else {}
    if figure:
        files[figure] = draw(found.figure(), figure)
    write_files(files, overwrite=overwrite)
    print_rich(planted_table(found.by_type))
    if found.drawn is not None:
        print_rich(random_table(found.drawn))
    say_written(files)
