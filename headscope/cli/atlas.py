"""`headscope atlas`: a run as a picture."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import LOOK, command
from headscope.cli.files import PICTURES, check_targets, draw, say_written
from headscope.cli.options import Overwrite, Run, Width
from headscope.runs.write import write_file


class Kind(StrEnum):
    """What `atlas` draws; see `headscope.views.pictures.KINDS`."""

    atlas = "atlas"
    layers = "layers"
    relations = "relations"
    thresholds = "thresholds"
    scatter = "scatter"
    arcs = "arcs"


@command(
    LOOK,
    "headscope atlas runs/mini --out atlas.pdf",
    "headscope atlas runs/mini --kind layers --width column --out layers.svg",
    "headscope atlas runs/mini --kind arcs --head L5H3 --out arcs.pdf",
)
def atlas(
    run: Run,
    out: Annotated[Path, typer.Option(help="A .pdf, .svg or .png file.")] = Path("atlas.pdf"),
    kind: Annotated[
        Kind,
        typer.Option(
            help="The atlas, the types by layer, each relation's best head, the tags that other "
            "thresholds would give, heads by two of their numbers, or a head's examples."
        ),
    ] = Kind.atlas,
    width: Width = None,
    head: Annotated[
        str | None, typer.Option(help="Whose examples arcs draws: L5H1 or 5.1.", show_default=False)
    ] = None,
    x: Annotated[
        str | None, typer.Option(help="Across, for scatter: a column.", show_default="entropy")
    ] = None,
    y: Annotated[
        str | None, typer.Option(help="Up, for scatter: a column.", show_default="lift")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw a run as a picture for a paper."""
    check_targets((out, PICTURES), overwrite=overwrite)
    from headscope.api import load
    from headscope.views.paper import width_of

    inches = width_of(width)
    figure = load(run).figure(kind.value, width=inches, head=head, x=x, y=y)
    write_file(out, draw(figure, out), overwrite=overwrite)
    say_written([out])
