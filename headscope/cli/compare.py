"""`headscope compare`: runs side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import (
    PICTURES,
    app,
    check_new,
    check_suffix,
    draw,
    print_rich,
    write_new,
)  # fmt: skip
from headscope.cli.look import Format


class Rows(StrEnum):
    """Which table `compare` writes as CSV."""

    heads = "heads"
    relations = "relations"
    correlation = "correlation"
    depth = "depth"


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two run folders or more.")],
    format: Annotated[Format, typer.Option(help="How to print; json has every table.")] = (
        Format.table
    ),
    table: Annotated[
        Rows | None,
        typer.Option(
            help="The rows of --format csv and --out: heads, head × relation, the rank correlation "
            "of each relation, or shares by depth; heads if shapes are the same, else depth.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this new .csv.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw atlases and shares: a new .png, .svg or .pdf file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page, without network: a new .html file.")
    ] = None,
) -> None:
    """Compare runs with the first: changed heads and lifts; shares of heads by depth.

    Runs of the same layers × heads are compared head by head. A difference of lift counts as sure
    where the two intervals do not overlap.
    """
    for path, suffixes in ((out, (".csv",)), (figure, PICTURES), (html, (".html",))):
        if path:
            check_suffix(path, *suffixes)
            check_new(path)
    from headscope.comparison.compare import compare as compare_runs
    from headscope.comparison.show import comparison_lines
    from headscope.comparison.write import comparison_csv, comparison_json

    found = compare_runs(*runs)
    files = {}
    rows = table.value if table else None
    if out:
        files[out] = comparison_csv(found, rows).encode("utf-8", "backslashreplace")
    if figure:
        files[figure] = draw(found.figure(), figure)
    if html:
        files[html] = found.html().encode("utf-8", "backslashreplace")
    csv = comparison_csv(found, rows) if format is Format.csv else ""
    write_new(files)
    if format is Format.table:
        print_rich(comparison_lines(found))
        for path in files:
            print(f"written to {path}")
    else:
        print(comparison_json(found) if format is Format.json else csv, end="")
