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
    stop_code,
    warn,
)

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
    quiet: Quiet = False,
) -> None:
    """Classify models × revisions × corpora: a run folder each, sweep.json and sweep.csv.

    Options replace the file's keys. Complete runs are kept, so that the same command resumes after
    a stop. Failed runs are listed in sweep.csv and at the end, with exit code 1.
    """
    from headscope.studies.sweep import sweep as run_sweep

    with _runs_kept():
        result = run_sweep(
            file,
            workers=workers,
            address=address,
            progress=not quiet,
            tell=message_listener(quiet),
            models=names_in(models, "--models"),
            revisions=names_in(revisions, "--revisions"),
            corpora=corpus or None,
            out=out,
            **settings,
        )
    print_rich(result.lines())
    if result.notes:
        raise typer.Exit(1)


LanguageModel = Annotated[str, typer.Argument(help="As for classify.", show_default=False)]
Treebanks = Annotated[
    list[str],
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
LanguagesOut = Annotated[Path, typer.Option(help="Folder of the runs and of languages.csv.")]


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
    corpus: Treebanks,
    languages: LanguageNames = None,
    out: LanguagesOut = Path("runs/languages"),
    figure: Picture = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Count the languages in which each head has a tag, with a run for each language.

    Parallel treebanks are read up to the same document. Complete runs are kept. Failed languages
    are listed, with exit code 1.
    """
    check_targets((figure, PICTURES), overwrite=overwrite)
    from headscope.studies.languages import TABLE
    from headscope.studies.languages import languages as run_languages

    with _runs_kept():
        study = run_languages(
            model,
            corpus,
            languages=names_in(None if languages is None else [languages], "--languages"),
            out=out,
            progress=not quiet,
            tell=message_listener(quiet),
            **settings,
        )
    print_rich(study.lines())
    say_written([out / TABLE, *write_study(study, None, figure, overwrite=overwrite)])
    if study.notes:
        raise typer.Exit(1)


@contextmanager
def _runs_kept() -> Iterator[None]:
    """Say at a stop that what is complete is kept, with the exit code of the stop."""
    try:
        yield
    except KeyboardInterrupt as stop:
        warn("headscope: stopped; complete runs are kept, and the same command goes on")
        raise typer.Exit(stop_code(stop)) from None
