"""Commands that look at a run: its heads, their reasons, its report and pictures."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import PICTURES, app, check_suffix, draw, print_rich, write_file


class Format(StrEnum):
    """How `heads` prints."""

    table = "table"
    csv = "csv"
    json = "json"


class Picture(StrEnum):
    """What `atlas` draws."""

    atlas = "atlas"
    layers = "layers"
    relations = "relations"


@app.command()
def heads(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    type: Annotated[
        str | None, typer.Option(help="Only heads with this tag, or unclassified.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
) -> None:
    """List the heads of a run, the strongest first."""
    from headscope.listing import list_heads, write_heads
    from headscope.store import load
    from headscope.summary import head_lines

    chosen = list_heads(load(run), type)
    if format is Format.table:
        print_rich(head_lines(chosen))
    else:
        print(write_heads(chosen, format.value), end="")


@app.command()
def why(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    head: Annotated[str, typer.Argument(help="L5H1 or 5.1 for layer 5, head 1.")],
) -> None:
    """Show each condition of a head's tags with its number, and the near misses."""
    from headscope.store import load

    print(load(run).why(head))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; RUN/report.html by default.", show_default=False)
    ] = None,
) -> None:
    """Write the visual report of a run again, as one HTML page."""
    from headscope.folder import REPORT, encoded, inside
    from headscope.store import load

    page = encoded(load(run).report())
    target = out or inside(run, REPORT)
    write_file(target, page)
    print(f"written to {target}")


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="A model as for classify, or a run folder.")],
    head: Annotated[str, typer.Argument(help="L5H1 or 5.1 for layer 5, head 1.")],
    text: Annotated[str, typer.Argument(help="Any text.")],
    out: Annotated[
        Path | None, typer.Option(help="A .html, .png, .svg or .pdf file; the terminal if none.")
    ] = None,
) -> None:
    """Show where a head looks on a text."""
    from headscope.head_view import show as show_head

    suffix = check_suffix(out, ".html", *PICTURES) if out else ""
    view = show_head(model, head, text)
    if out is None:
        print_rich(view.grid())
        return
    write_file(out, view.html().encode("utf-8") if suffix == ".html" else draw(view.figure(), out))
    print(f"written to {out}")


@app.command()
def atlas(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path, typer.Option(help="A .pdf, .svg or .png file.")] = Path("atlas.pdf"),
    kind: Annotated[
        Picture, typer.Option(help="The atlas, the types by layer, or each relation's best head.")
    ] = Picture.atlas,
) -> None:
    """Draw a run as a picture for a paper."""
    from headscope.figures import FIGURES
    from headscope.store import load

    check_suffix(out, *PICTURES)
    write_file(out, draw(FIGURES[kind.value](load(run)), out))
    print(f"written to {out}")
