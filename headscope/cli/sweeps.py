"""Commands that classify many times, a run folder each: `sweep run`, `sweep languages`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.cli.files import print_written
from headscope.cli.shell_options import takes_settings
from headscope.cli.study_command import StudyCall, body
from headscope.cli.terminal import message_listener, print_rich, stop_code, warn

_LIST = "repeatable, or separated by commas"


@body("sweep")
@takes_settings("types", "quick", "max_tokens")
def sweep(
    call: StudyCall,
    settings: dict[str, Any],
    models: Annotated[
        list[str] | None,
        typer.Option(help=f"Models, as for classify; {_LIST}.", show_default=False),
    ] = None,
    revisions: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Revisions of each model on the hub, or folders in a local one; {_LIST}.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="Corpora, each read on its own. Default: gum, which ships; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the sweep. Default: runs/FILE.")
    ] = None,
) -> None:
    """Classify models × revisions × corpora: a run folder each, sweep.json and sweep.csv.

    Options replace the file's keys, which may be any setting of classify. Complete runs are kept,
    and the same command resumes after a stop. Failed runs are listed in sweep.csv and at the end,
    with exit code 1.
    """
    own = {"models": models, "revisions": revisions, "corpora": corpus, "out": out}
    settings |= {name: value for name, value in own.items() if value}
    with _runs_kept():
        result = call.result(
            on_message=message_listener(call.quiet), progress=not call.quiet, **settings
        )
    print_rich(result.lines())
    if result.notes:
        raise typer.Exit(1)


@body("languages")
@takes_settings(
    *("types", "quick", "max_tokens"),
    help_texts={
        "types": "Head types to score: names separated by commas. Default: syntactic.",
    },
)
def languages(
    call: StudyCall,
    settings: dict[str, Any],
    corpus: Annotated[
        list[str],
        typer.Option(
            help="Treebanks or folders of them, with names of Universal Dependencies such as "
            "de_pud-ud-test.conllu; repeatable.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the runs and of languages.csv.")] = Path(
        "runs/languages"
    ),
) -> None:
    """Count the languages in which each head has a tag, with a run for each language.

    Parallel treebanks are read up to the same document. Complete runs are kept. Failed languages
    are listed, with exit code 1.
    """
    call.check()
    from headscope.studies.languages import TABLE

    listener, progress = message_listener(call.quiet), not call.quiet
    with _runs_kept():
        result = call.result(
            corpus=corpus, out=out, on_message=listener, progress=progress, **settings
        )
    print_rich(result.lines())
    print_written([out / TABLE, *call.write(result)])
    if result.notes:
        raise typer.Exit(1)


@contextmanager
def _runs_kept() -> Iterator[None]:
    """Print at a stop that complete runs are kept, and exit with the code of the stop."""
    try:
        yield
    except KeyboardInterrupt as stop:
        warn("headscope: stopped; complete runs are kept, and the same command resumes")
        raise typer.Exit(stop_code(stop)) from None
