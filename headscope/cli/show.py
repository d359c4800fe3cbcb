"""`headscope show`: a head on any text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import LOOK, command
from headscope.cli.files import HTML, PICTURES, check_targets, draw, say_written
from headscope.cli.options import Device, Head, ModelOrRun, Overwrite, Revision, Source
from headscope.cli.terminal import print_rich
from headscope.runs.write import write_file


@command(
    LOOK,
    'headscope show mini L3H1 "The king lost his ring."',
    'headscope show runs/mini 3.1 "The king lost his ring." --out king.html',
)
def show(
    model: ModelOrRun,
    head: Head,
    text: Annotated[str, typer.Argument(help="Any text.")],
    target: Annotated[
        str | None,
        typer.Option(help="What the decoder reads, for a head across such as X0H1."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A .html, .png, .svg or .pdf file; the terminal if none.")
    ] = None,
    overwrite: Overwrite = False,
    revision: Revision = None,
    device: Device = "auto",
    source: Source = None,
) -> None:
    """Show where a head looks on a text."""
    check_targets((out, (*HTML, *PICTURES)), overwrite=overwrite)
    from headscope.views.show import show as show_head

    view = show_head(
        model, head, text, target=target, source=source, revision=revision, device=device
    )
    if out is None:
        print_rich(view.grid())
        return
    page = out.suffix.lower() in HTML
    content = view.html().encode("utf-8") if page else draw(view.figure(), out)
    write_file(out, content, overwrite=overwrite)
    say_written([out])
