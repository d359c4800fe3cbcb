"""`headscope redundancy`: how alike a model's heads are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Device, Format, OtherText, Overwrite, Printed, Quiet, Run, Source
from headscope.cli.terminal import print_rich, put


@command(
    COMPARE,
    "headscope redundancy runs/mini --figure map.png",
    "headscope redundancy runs/mini --windows 64 --format json",
)
def redundancy(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="Write each head's row to this .csv.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the map of heads: a .png, .svg or .pdf file.")
    ] = None,
    overwrite: Overwrite = False,
    windows: Annotated[int, typer.Option(help="Windows of text to read.")] = 32,
    corpus: OtherText = None,
    format: Printed = Format.table,
    device: Device = "auto",
    source: Source = None,
    quiet: Quiet = False,
) -> None:
    """Say how alike a model's heads are: nearest heads, clusters, a map, groups compared."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.redundancy.run import redundancy as compare_heads
    from headscope.studies.redundancy.view import redundancy_lines
    from headscope.studies.redundancy.write import write_redundancy
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet) as advance:
        found = compare_heads(
            run, corpus or (), windows=windows, device=device, source=source, progress=advance
        )
    files = write_study(found, out, figure, overwrite=overwrite)
    if format is Format.table:
        print_rich(redundancy_lines(found))
    else:
        put(write_redundancy(found, format.value))
    say_written(files if format is Format.table else ())
