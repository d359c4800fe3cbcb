"""`headscope compare`: runs side by side."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, HTML, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Format, Overwrite, Width
from headscope.cli.terminal import print_rich, put, warn


class Rows(StrEnum):
    """Which table `compare` writes as CSV."""

    heads = "heads"
    relations = "relations"
    correlation = "correlation"
    depth = "depth"


Table = Annotated[
    Rows | None,
    typer.Option(
        help="The rows of --format csv and --out: heads, head × relation, the rank correlation "
        "of each relation, or shares by depth; heads if shapes are the same, else depth.",
        show_default=False,
    ),
]


@command(
    COMPARE,
    "headscope compare runs/mini runs/gpt2",
    "headscope compare runs/one runs/two --table relations --out changes.csv --html changes.html",
    "headscope compare runs/base runs/new --fail-on 'lost induction > 0' --html changes.html",
)
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two run folders or more.", autocompletion=complete.runs)
    ],
    format: Annotated[Format, typer.Option(help="How to print; json has every table.")] = (
        Format.table
    ),
    table: Table = None,
    out: Annotated[Path | None, typer.Option(help="Write the rows to this .csv.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw atlases and shares: a .png, .svg or .pdf file.")
    ] = None,
    width: Width = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page, without network: a .html file.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="End with exit code 1 if this holds: 'lost induction > 0', 'sure changes > 3'; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare runs with the first: changed heads and lifts; shares of heads by depth.

    Runs of the same layers × heads are compared head by head. A difference of lift counts as sure
    where the two intervals do not overlap. With --fail-on it guards a model in CI.
    """
    check_targets((out, CSV), (figure, PICTURES), (html, HTML), overwrite=overwrite)
    from headscope.runs.folder import encoded
    from headscope.studies.compare.guard import verdicts
    from headscope.studies.compare.run import compare as compare_runs
    from headscope.studies.compare.view import comparison_lines
    from headscope.studies.compare.write import comparison_csv, comparison_json

    found = compare_runs(*runs)
    judged = verdicts(found, fail_on) if fail_on else []
    found = replace(found, notes=(*map(str, judged), *found.notes))
    rows = table.value if table else None
    csv = comparison_csv(found, rows) if out or format is Format.csv else ""
    pages = {} if html is None else {html: encoded(found.html())}
    tables = {} if out is None else {out: encoded(csv)}
    files = write_study(found, None, figure, tables | pages, overwrite=overwrite, width=width)
    if format is Format.table:
        print_rich(comparison_lines(found))
        say_written(files)
    else:
        put(comparison_json(found) if format is Format.json else csv)
    if any(each.failed for each in judged):
        if format is not Format.table:
            warn("\n".join(str(each) for each in judged if each.failed))
        raise typer.Exit(1)
