"""Commands that compare: runs, revisions, published scores, heads whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.cli import complete
from headscope.cli.files import CSV, HTML, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Corpus, Format, Overwrite, Printed, Quiet, Tokens, Width
from headscope.cli.study_command import StudyCall, body, command_of
from headscope.cli.terminal import message_listener, print_rich, put, say, shown_progress, warn
from headscope.errors import ArgumentError

if TYPE_CHECKING:
    from headscope.views.study import Study


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
    film: Annotated[
        Path | None,
        typer.Option(help="The atlas along the revisions with a slider: a .html file, no network."),
    ] = None,
    format: Printed = Format.table,
) -> None:
    """Say how many heads of each type exist at each revision of a sweep."""
    call.check()
    check_targets((film, HTML), overwrite=call.overwrite)
    from headscope.runs.folder import encoded
    from headscope.runs.listing import write_heads
    from headscope.studies.sweep.film import film_html
    from headscope.studies.sweep.sweep_cells import read_sweep_cells
    from headscope.studies.sweep.sweep_result import emergence_lines

    counts = call.result()
    page = {} if film is None else {film: encoded(film_html(sweep, read_sweep_cells(sweep)))}
    files = call.write(counts, page)
    if format is Format.table:
        print_rich(emergence_lines(counts.counts))
        say_written(files)
    else:
        put(write_heads(counts.counts, format.value))


_ZOO = "Instead, what headscope check heuristics does."
_ENCODER = "With --zoo: try heads that see both ways."
_TOKENS = 128_000


@body("calibrate")
def calibrate(
    call: StudyCall,
    model: Annotated[
        str | None,
        typer.Argument(
            help="Also try this architecture with random weights.", autocompletion=complete.models
        ),
    ] = None,
    zoo: Annotated[bool, typer.Option("--zoo", help=_ZOO)] = False,
    encoder: Annotated[bool, typer.Option("--encoder", help=_ENCODER)] = False,
    corpus: Corpus = None,
    max_tokens: Tokens = _TOKENS,
) -> None:
    """Say how often tags are right, on heads that are known.

    Without --zoo these are hand-built models with noise on every weight, which read text of their
    own: --corpus and --max-tokens are for the zoo.
    """
    call.check()
    writes, loading = call.arguments["writes"], ("revision", "device")
    if zoo and model is not None:
        raise ArgumentError(f"--zoo tries no model, and {model} was named; leave out one of them")
    if zoo and writes:
        raise ArgumentError("--zoo are patterns, which write nothing: leave out it or --writes")
    if encoder and not zoo:
        raise ArgumentError("--encoder is for --zoo; planted models look back")
    if corpus and not zoo:
        raise ArgumentError("--corpus is what --zoo reads; planted models have their own text")
    if max_tokens != _TOKENS and not zoo:
        raise ArgumentError("--max-tokens is for --zoo; planted models have a text of their own")
    if zoo and tuple(call.arguments[name] for name in loading) != (None, "auto"):
        raise ArgumentError("--zoo runs no model: leave --revision and --device out")
    calibration, tables = _zoo(call, corpus or None, encoder, max_tokens) if zoo else _planted(call)
    files = call.write(calibration)
    for lines in tables:
        print_rich(lines)
    say_written(files)
    say(_next_step(model, zoo=zoo, writes=writes))


def _next_step(model: str | None, *, zoo: bool, writes: bool) -> str:
    """The check that was not made yet."""
    if zoo:
        return "next: headscope check calibrate plants heads in models, with noise on every weight"
    if model is None:
        flag = " --writes" if writes else ""
        command = f"headscope check calibrate MODEL{flag}"
        return f"next: {command} tries a model's shape with random weights"
    return "next: headscope check heuristics tries simple habits on natural text"


def _planted(call: StudyCall) -> tuple[Study, list[object]]:
    """The calibration, and what is printed of it."""
    from headscope.studies.validation.calibrate_result import planted_table, random_table

    calibration = call.result(tell=message_listener(call.quiet))
    random_tables = [] if calibration.drawn is None else [random_table(calibration.drawn)]
    return calibration, [planted_table(calibration.by_type), *random_tables]


def _zoo(
    call: StudyCall, corpus: list[Path] | None, encoder: bool, max_tokens: int
) -> tuple[Study, list[object]]:
    from headscope.studies.validation.heuristic_benchmark.benchmark import zoo as run_zoo
    from headscope.studies.validation.heuristic_benchmark.benchmark_result import zoo_lines

    progress = shown_progress(call.quiet)
    benchmark = run_zoo(corpus, encoder=encoder, max_tokens=max_tokens, progress=progress)
    return benchmark, [zoo_lines(benchmark)]
