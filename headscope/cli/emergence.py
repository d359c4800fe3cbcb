"""`headscope emergence`: what comes and goes along the revisions of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, HTML, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Format, Overwrite, Picture, Printed, Table, Width
from headscope.cli.terminal import print_rich, put


@command(
    COMPARE,
    "headscope emergence runs/stages --figure stages.pdf",
    "headscope emergence runs/stages --film stages.html",
    "headscope emergence runs/stages --format csv",
)
def emergence(
    sweep: Annotated[Path, typer.Argument(help="A sweep's folder.")],
    out: Table = None,
    figure: Picture = None,
    width: Width = None,
    film: Annotated[
        Path | None,
        typer.Option(help="The atlas along the revisions with a slider: a .html file, no network."),
    ] = None,
    overwrite: Overwrite = False,
    format: Printed = Format.table,
) -> None:
    """Say how many heads of each type exist at each revision of a sweep."""
    check_targets((out, CSV), (figure, PICTURES), (film, HTML), overwrite=overwrite)
    from headscope.runs.folder import encoded
    from headscope.runs.listing import write_heads
    from headscope.studies.sweep.cells import read_cells
    from headscope.studies.sweep.emergence import emergence as count
    from headscope.studies.sweep.film import film_html
    from headscope.studies.sweep.view import emergence_lines

    found = count(sweep)
    page = {} if film is None else {film: encoded(film_html(sweep, read_cells(sweep)))}
    files = write_study(found, out, figure, page, overwrite=overwrite, width=width)
    if format is Format.table:
        print_rich(emergence_lines(found.counts))
    else:
        put(write_heads(found.counts, format.value))
    say_written(files if format is Format.table else ())
