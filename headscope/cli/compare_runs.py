"""Command that compares runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.files import CSV, PICTURES, check_targets, print_written, write_study
from headscope.cli.shell_options import Overwrite
from headscope.cli.study_command import command_of
from headscope.cli.terminal import print_rich


@command_of("compare")
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two run folders or more.")],
    out: Annotated[Path | None, typer.Option(help="Write the table to this .csv file.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the lift differences: a .png, .svg or .pdf file.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if this holds: 'lost induction > 0', 'sure changes > 3'; "
            "repeatable.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare runs with the first one, head by head: changed tags and lifts.

    A change counts as sure if the 95 % intervals of the lift do not overlap. With --fail-on the
    command guards a model in CI.
    """
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.compare import compare as compare_runs
    from headscope.studies.compare import condition_outcomes

    result = compare_runs(*runs)
    outcomes = condition_outcomes(result, fail_on or [])
    result = replace(result, notes=(*map(str, outcomes), *result.notes))
    files = write_study(result, out, figure, overwrite=overwrite)
    print_rich(result.lines())
    print_written(files)
    if any(outcome.failed for outcome in outcomes):
        raise typer.Exit(1)
