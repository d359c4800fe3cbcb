"""`headscope languages`: which heads hold a relation in how many languages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.cli.app import MEASURE, command
from headscope.cli.files import PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Address, Overwrite, Picture, Quiet, Workers
from headscope.cli.settings import takes_settings
from headscope.cli.terminal import print_rich, say, warn

Model = Annotated[str, typer.Argument(help="As for classify.", show_default=False)]
Treebanks = Annotated[
    list[str] | None,
    typer.Option(
        help="Treebanks or folders of them, named as in Universal Dependencies: "
        "de_pud-ud-test.conllu; repeatable.",
        show_default=False,
    ),
]
Wanted = Annotated[
    str | None,
    typer.Option(help="Codes of the languages to read, separated by commas; all by default."),
]
Out = Annotated[
    Path, typer.Option(help="Folder of the runs, of languages.csv and of relations.csv.")
]


@command(
    MEASURE,
    "headscope languages bigscience/bloom-560m --corpus pud/",
    "headscope languages model/ --corpus pud/ --languages de,ja,zh --figure languages.svg",
)
@takes_settings(
    without=("built",),
    said=True,
    told={"types": "Head types to score, separated by commas; syntactic by default."},
)
def languages(
    settings: dict[str, Any],
    model: Model,
    corpus: Treebanks = None,
    languages: Wanted = None,
    out: Out = Path("runs/languages"),
    figure: Picture = None,
    overwrite: Overwrite = False,
    engine_workers: Workers = 0,
    address: Address = None,
    quiet: Quiet = False,
) -> None:
    """Say which heads hold a relation in how many languages, a run for each treebank's language.

    Asks the type syntactic unless --types says more. Parallel treebanks are read up to the same
    document. Runs that are complete are kept; a language that fails is named, with exit code 1.
    """
    check_targets((figure, PICTURES), overwrite=overwrite)
    from headscope.errors import HeadscopeError
    from headscope.studies.sweep.languages.run import TABLES
    from headscope.studies.sweep.languages.run import languages as run_languages
    from headscope.studies.sweep.languages.view import languages_lines
    from headscope.views.progress import progress_bar

    if not corpus:
        raise HeadscopeError(
            "no treebanks: name them or their folder with --corpus, e.g. --corpus pud/"
        )
    wanted = [code.strip() for code in (languages or "").split(",") if code.strip()]
    tell = (lambda _: None) if quiet else warn
    try:
        with progress_bar(quiet=quiet) as advance:
            found = run_languages(
                model,
                corpus,
                languages=wanted,
                out=out,
                workers=engine_workers,
                address=address,
                progress=advance,
                tell=tell,
                **settings,
            )
    except KeyboardInterrupt:
        warn("headscope: stopped; complete runs are kept, and the same command goes on")
        raise typer.Exit(130) from None
    print_rich(languages_lines(found))
    say("")
    say_written(out / name for name in TABLES)
    say_written(write_study(found, None, figure, overwrite=overwrite))
    if found.failed:
        raise typer.Exit(1)
