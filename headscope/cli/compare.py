"""Commands that compare: runs, revisions, published scores, heads whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.cli import complete
from headscope.cli.files import CSV, HTML, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Format, Overwrite, Printed, Quiet, Width
from headscope.cli.study_command import StudyCall, body, command_of
from headscope.cli.terminal import print_rich, put, shown_progress, warn

if TYPE_CHECKING:
    pass


class Rows(StrEnum):
    """The table that `compare` writes as CSV."""

    heads = "heads"
    relations = "relations"
    correlation = "correlation"
    depth = "depth"


RowsOption = Annotated[
    Rows | None,
    typer.Option(
        help="The rows of --format csv and --out: heads, head × relation, the rank correlation "
        "of each relation, or shares by depth; heads if shapes are the same, else depth.",
        show_default=False,
    ),
]


@command_of("compare")
def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two run folders or more.", autocompletion=complete.runs)
    ],
    format: Annotated[Format, typer.Option(help="How to print; json has every table.")] = (
        Format.table
    ),
    table: RowsOption = None,
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
    quiet: Quiet = False,
) -> None:
    """Compare runs with the first: changed heads and lifts; shares of heads by depth.

    Runs of the same layers × heads are compared head by head. A difference of lift counts as sure
    where the two intervals do not overlap. With --fail-on it guards a model in CI.
    """
    check_targets((out, CSV), (figure, PICTURES), (html, HTML), overwrite=overwrite)
    from headscope.runs.folder import encoded
    from headscope.runs.tables import table_to_csv
    from headscope.studies.compare.compare_view import comparison_lines
    from headscope.studies.compare.side_by_side import compare as compare_runs
    from headscope.studies.compare.verdict_guard import condition_outcomes

    comparison = compare_runs(*runs, progress=shown_progress(quiet))
    judged = condition_outcomes(comparison, fail_on) if fail_on else []
    comparison = replace(comparison, notes=(*map(str, judged), *comparison.notes))
    rows = table.value if table else None
    csv = table_to_csv(comparison.choose(rows)) if out or format is Format.csv else ""
    pages = {} if html is None else {html: encoded(comparison.html())}
    tables = {} if out is None else {out: encoded(csv)}
    files = write_study(comparison, None, figure, tables | pages, overwrite=overwrite, width=width)
    if format is Format.table:
        print_rich(comparison_lines(comparison))
        say_written(files)
    else:
        put(comparison.json() if format is Format.json else csv)
    if any(judgement.failed for judgement in judged):
        if format is not Format.table:
            warn("\n".join(str(judgement) for judgement in judged if judgement.failed))
        raise typer.Exit(1)


@body("emergence")
def emergence(
    call: StudyCall,
    sweep: Annotated[Path, typer.Argument(help="A sweep's folder.")],
    width: Width = None,
    format: Printed = Format.table,
) -> None:
    """Say how many heads of each type exist at each revision of a sweep."""
    call.check()
    from headscope.runs.listing import write_heads
    from headscope.studies.sweep.sweep_result import emergence_lines

    counts = call.result()
    files = call.write(counts)
    if format is Format.table:
        print_rich(emergence_lines(counts.counts))
        say_written(files)
    else:
        put(write_heads(counts.counts, format.value))
