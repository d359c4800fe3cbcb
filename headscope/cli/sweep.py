"""Commands that classify many times, a run folder each: `sweep`, `languages`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.cli.files import PICTURES, check_targets, say_written, write_study
from headscope.cli.options import (
    Address,
    Overwrite,
    Picture,
    Quiet,
    Workers,
    names_in,
    takes_settings,
)
from headscope.cli.study_command import command_of
from headscope.cli.terminal import (
    message_listener,
    print_rich,
    say,
    shown_progress,
    stop_code,
    warn,
)
from headscope.errors import HeadscopeError
from headscope.printing import one_line

_LIST = "repeatable, or separated by commas"
SweepFile = Annotated[
    Path | None,
    typer.Argument(help="YAML with models, revisions, corpora, out and classify's settings."),
]
Models = Annotated[
    list[str] | None, typer.Option(help=f"As for classify; {_LIST}.", show_default=False)
]
Revisions = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Of each model on the hub, or folders inside a local one; {_LIST}.",
        show_default=False,
    ),
]
Corpora = Annotated[
    list[str] | None,
    typer.Option(help="A corpus of its own for each; repeatable; what ships by default."),
]
SweepOut = Annotated[Path | None, typer.Option(help="The sweep's folder; runs/FILE by default.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what there is to do, and what it may cost.")
]


@command_of("sweep")
@takes_settings(without=("revision",), explicit_only=True)
def sweep(
    settings: dict[str, Any],
    file: SweepFile = None,
    models: Models = None,
    revisions: Revisions = None,
    corpus: Corpora = None,
    out: SweepOut = None,
    workers: Workers = 1,
    address: Address = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Classify models × revisions × corpora: a run folder each, sweep.json and sweep.csv.

    Options replace the file's keys. Runs that are complete are kept, so that the same command goes
    on after a stop. What fails is named in sweep.csv and at the end, with exit code 1; a dry run
    that finds what would fail ends with 2.
    """
    options = {
        "models": names_in(models, "--models"),
        "revisions": names_in(revisions, "--revisions"),
        "corpora": corpus or None,
        "out": None if out is None else str(out),
        **settings,
    }
    if dry_run:
        _print_plan(file, options, workers)
    else:
        _sweep(file, options, workers, address, quiet=quiet)


def _sweep(
    file: Path | None,
    options: dict[str, Any],
    workers: int,
    address: str | None,
    *,
    quiet: bool,
) -> None:
    """Do what there is to do; ends with 1 if something of it failed."""
    from headscope.studies.sweep.run_cells import sweep as run_sweep
    from headscope.studies.sweep.sweep_cells import TABLE
    from headscope.studies.sweep.sweep_result import sweep_lines

    with _runs_kept():
        result = run_sweep(
            file,
            workers=workers,
            address=address,
            progress=shown_progress(quiet),
            tell=message_listener(quiet),
            **options,
        )
    print_rich(sweep_lines(result.cells, result.settings))
    say(f"\nwritten to {one_line(result.out)}; see {one_line(result.out / TABLE)}")
    if any(cell.error for cell in result.cells):
        raise typer.Exit(1)


def _print_plan(file: Path | None, options: dict[str, Any], workers: int) -> None:
    """Print what there is to do; ends with 2 if something of it would fail."""
    from headscope.studies.sweep.cell_plan import plan, plan_lines
    from headscope.studies.sweep.spec import read_spec

    spec = read_spec(file, **options)
    plans = plan(spec)
    print_rich(plan_lines(plans, spec, workers))
    if any(plan.error for plan in plans):
        raise typer.Exit(2)


LanguageModel = Annotated[str, typer.Argument(help="As for classify.", show_default=False)]
Treebanks = Annotated[
    list[str] | None,
    typer.Option(
        help="Treebanks or folders of them, named as in Universal Dependencies: "
        "de_pud-ud-test.conllu; repeatable.",
        show_default=False,
    ),
]
LanguageNames = Annotated[
    str | None,
    typer.Option(help="Codes of the languages to read, separated by commas; all by default."),
]
LanguagesOut = Annotated[
    Path, typer.Option(help="Folder of the runs, of languages.csv and of relations.csv.")
]


@command_of("languages")
@takes_settings(
    without=("built",),
    explicit_only=True,
    help_texts={
        "types": "Head types to score, separated by commas; syntactic by default.",
        "all": "Read all that text; parallel treebanks are read so unless --no-all is said.",
    },
)
def languages(
    settings: dict[str, Any],
    model: LanguageModel,
    corpus: Treebanks = None,
    languages: LanguageNames = None,
    out: LanguagesOut = Path("runs/languages"),
    figure: Picture = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Say which heads hold a relation in how many languages, a run for each treebank's language.

    Asks the type syntactic unless --types says more. Parallel treebanks are read up to the same
    document. Runs that are complete are kept; a language that fails is named, with exit code 1.
    """
    check_targets((figure, PICTURES), overwrite=overwrite)
    from headscope.studies.sweep.languages.classify_languages import TABLES
    from headscope.studies.sweep.languages.classify_languages import languages as run_languages
    from headscope.studies.sweep.languages.languages_view import languages_lines

    if not corpus:
        raise HeadscopeError(
            "no treebanks: name them or their folder with --corpus, e.g. --corpus pud/"
        )
    codes = names_in(None if languages is None else [languages], "--languages")
    with _runs_kept():
        study = run_languages(
            model,
            corpus,
            languages=codes,
            out=out,
            progress=shown_progress(quiet),
            tell=message_listener(quiet),
            **settings,
        )
    print_rich(languages_lines(study))
    say("")
    say_written(out / name for name in TABLES)
    say_written(write_study(study, None, figure, overwrite=overwrite))
    say(f"headscope why {one_line(out)}/RUN HEAD says what a head's tags rest on in one language")
    if study.failed:
        raise typer.Exit(1)


@contextmanager
def _runs_kept() -> Iterator[None]:
    """Say at a stop that what is complete is kept, with the exit code of the stop."""
    try:
        yield
    except KeyboardInterrupt as stop:
        warn("headscope: stopped; complete runs are kept, and the same command goes on")
        raise typer.Exit(stop_code(stop)) from None
