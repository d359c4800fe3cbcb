"""`headscope report`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import LOOK, command
from headscope.cli.files import HTML, check_targets, say_written
from headscope.cli.options import Overwrite, Run
from headscope.runs.write import write_file


@command(LOOK, "headscope report runs/mini", "headscope report runs/mini --light --out mini.html")
def report(
    run: Run,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The page, a .html file; the run's own report.html anew by default.",
            show_default=False,
        ),
    ] = None,
    light: Annotated[
        bool, typer.Option("--light", help="Leave circuitsvis out: a smaller page, without eval.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the visual report of a run again, as one HTML page."""
    check_targets((out, HTML), overwrite=overwrite)
    from headscope.api import load
    from headscope.runs.folder import REPORT, encoded, inside

    page = encoded(load(run).report(light=light))
    # the run's own page holds nothing that is not in the run
    target = out or inside(run, REPORT)
    write_file(target, page, overwrite=overwrite or out is None)
    say_written([target])
