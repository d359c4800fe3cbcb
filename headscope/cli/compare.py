"""`headscope compare`: runs side by side."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, HTML, PICTURES, check_targets, draw, say_written
from headscope.cli.options import Format, Overwrite
from headscope.cli.terminal import print_rich, put
from headscope.runs.write import write_files


class Rows(StrEnum):
    """Which table `compare` writes as CSV."""

    heads = "heads"
    relations = "relations"
    correlation = "correlation"
    depth = "depth"


@command(
    COMPARE,
    "headscope compare runs/mini runs/gpt2",
    "headscope compare runs/one runs/two --table relations --out changes.csv --html changes.html",
)
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two run folders or more.", autocompletion=complete.runs)
    ],
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
    out: Annotated[Path | None, typer.Option(help="Write the rows to this .csv.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw atlases and shares: a .png, .svg or .pdf file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page, without network: a .html file.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare runs with the first: changed heads and lifts; shares of heads by depth.

    Runs of the same layers × heads are compared head by head. A difference of lift counts as sure
    where the two intervals do not overlap.
    """
    check_targets((out, CSV), (figure, PICTURES), (html, HTML), overwrite=overwrite)
    from headscope.studies.compare.run import compare as compare_runs
    from headscope.studies.compare.view import comparison_lines
    from headscope.studies.compare.write import comparison_csv, comparison_json

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
    write_files(files, overwrite=overwrite)
    if format is Format.table:
        print_rich(comparison_lines(found))
    else:
        put(comparison_json(found) if format is Format.json else csv)
    say_written(files if format is Format.table else ())
