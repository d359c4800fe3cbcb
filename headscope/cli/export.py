"""Commands that export a run: as a picture, as a site, as the data of other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import command
from headscope.cli.files import PICTURES, check_targets, draw, print_written
from headscope.cli.shell_options import Overwrite, Quiet, Run, Width
from headscope.cli.study_command import StudyCall, body
from headscope.runs.write import write_file
from headscope.studies.study_table import DRAW, EXPORT


class PictureKind(StrEnum):
    """Pictures that `atlas` draws; see `headscope.views.figures.FIGURES`."""

    atlas = "atlas"
    layers = "layers"
    relations = "relations"


@command(
    DRAW,
    "How does a run look: heads by type, layers, relations, …?",
    "headscope draw atlas runs/mini --out atlas.pdf",
    "headscope draw atlas runs/mini --kind layers --width column --out layers.svg",
)
def atlas(
    run: Run,
    out: Annotated[Path, typer.Option(help="A .pdf, .svg or .png file.")] = Path("atlas.pdf"),
    kind: Annotated[
        PictureKind,
        typer.Option(help="The atlas, the types by layer, or each relation's best head."),
    ] = PictureKind.atlas,
    width: Width = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw a run as a picture for a paper."""
    check_targets((out, PICTURES), overwrite=overwrite)
    from headscope.run import load
    from headscope.views.figure_style import width_of

    figure = load(run).figure(kind.value, width=width_of(width))
    write_file(out, draw(figure, out), overwrite=overwrite)
    print_written([out])


@command(
    EXPORT,
    "How do many runs become one site?",
    "headscope export gallery runs/mini runs/gpt2 --out site",
    "headscope export gallery runs/stages/* --out site --light --overwrite",
)
def gallery(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
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
    """Write many runs as a static site: an index and every report.

    The site asks no network. It can be opened from the disk, or published as it is.
    """
    from headscope.runs.site import check_site

    check_site(out, overwrite=overwrite)
    from headscope.views.gallery import gallery as write

    index = write(*runs, out=out, light=light, overwrite=overwrite, progress=not quiet)
    print_written([index])


@command(
    EXPORT,
    "How are results shared, small and without a model?",
    "headscope export atlas runs/mini runs/gpt2 --out atlases",
    "headscope export atlas runs/sweep/* --overwrite",
    name="atlas",
)
def pack(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The folder, new or empty.")] = Path("atlases"),
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace atlases in that folder; other files stay."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Pack runs into one small file each, with a data set card.

    An atlas stands wherever a run folder does, as in headscope why atlases/mini.tar.xz L5H1. Heads,
    evidence, mean patterns and examples are in it, the sums are not.
    """
    from headscope.views.gallery.atlas_card import export_atlases

    card = export_atlases(*runs, out=out, overwrite=overwrite, progress=not quiet)
    print_written([card])


@body("headvis")
def headvis(
    call: StudyCall,
    out: Annotated[
        Path, typer.Option(help="The folder, new or empty; HeadVis looks for one named data.")
    ] = Path("data"),
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace an export in that folder; other files stay."),
    ] = False,
) -> None:
    from headscope.runs.site import HEADVIS, check_site

    check_site(out, overwrite=overwrite, site=HEADVIS)
    call.show(call.result(), [])
    print_written([out])
