"""`headscope gallery`: many runs as one site of pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import LOOK, command
from headscope.cli.files import say_written
from headscope.cli.options import Quiet


@command(
    LOOK,
    "headscope gallery runs/mini runs/gpt2 --out site",
    "headscope gallery runs/stages/* --out site --light --overwrite",
)
def gallery(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", autocompletion=complete.runs)],
    out: Annotated[Path, typer.Option(help="The site's folder, new or empty.")] = Path("site"),
    light: Annotated[
        bool, typer.Option("--light", help="Leave circuitsvis out of the reports: smaller pages.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a gallery in that folder; other files stay."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write many runs as a static site: an index, every report, and one CSV of all heads.

    The site asks no network. It can be opened from the disk, or published as it is.
    """
    from headscope.runs.site import check_site

    check_site(out, overwrite=overwrite)
    from headscope.views.gallery.write import gallery as write
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet, doing="writing reports", unit="runs") as progress:
        index = write(*runs, out=out, light=light, overwrite=overwrite, progress=progress)
    say_written([index])
