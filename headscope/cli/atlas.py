"""`headscope atlas`: a run as a picture."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import LOOK, command
from headscope.cli.files import PICTURES, check_targets, draw, say_written
from headscope.cli.options import Overwrite, Run
from headscope.runs.write import write_file


class Kind(StrEnum):
    """What `atlas` draws; see `headscope.views.figures.FIGURES`."""

    atlas = "atlas"
    layers = "layers"
    relations = "relations"
    thresholds = "thresholds"


@command(
    LOOK,
    "headscope atlas runs/mini --out atlas.pdf",
    "headscope atlas runs/mini --kind layers --out layers.png",
)
def atlas(
    run: Run,
    out: Annotated[Path, typer.Option(help="A .pdf, .svg or .png file.")] = Path("atlas.pdf"),
    kind: Annotated[
        Kind,
        typer.Option(
            help="The atlas, the types by layer, each relation's best head, or the tags that other "
            "thresholds would give."
        ),
    ] = Kind.atlas,
    overwrite: Overwrite = False,
) -> None:
    """Draw a run as a picture for a paper."""
    check_targets((out, PICTURES), overwrite=overwrite)
    from headscope.api import load

    write_file(out, draw(load(run).figure(kind.value), out), overwrite=overwrite)
    say_written([out])
