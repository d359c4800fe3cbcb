"""`headscope redundancy`: how alike a model's heads are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, check_targets, draw, print_rich, write_files
from headscope.cli.look import Format


@app.command()
def redundancy(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[Path | None, typer.Option(help="Write each head's row to this .csv.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the map of heads: a .png, .svg or .pdf file.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Windows of text to read.")] = 32,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(help="Text, as for classify; repeatable; the run's own by default."),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Say how alike a model's heads are: nearest heads, clusters, a map, groups compared."""
    check_targets(out, figure)
    from headscope.progress import progress_bar
    from headscope.redundant.redundancy import redundancy as compare_heads
    from headscope.redundant.show import redundancy_lines
    from headscope.redundant.write import write_redundancy

    with progress_bar(quiet=quiet) as advance:
        found = compare_heads(run, corpus or (), windows=windows, progress=advance)
    files = {out: write_redundancy(found, "csv").encode("utf-8")} if out else {}
    if figure:
        files[figure] = draw(found.figure(), figure)
    if format is Format.table:
        print_rich(redundancy_lines(found))
    else:
        print(write_redundancy(found, format.value), end="")
    write_files(files, tell=format is Format.table)
