"""`headscope classify`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import MEASURE, command
from headscope.cli.options import Corpus, Model, Quiet
from headscope.cli.settings import takes_settings
from headscope.cli.terminal import print_rich, say, warn
from headscope.settings import Settings


@command(
    MEASURE,
    "headscope classify mini",
    "headscope classify gpt2 --corpus my_texts/ --max-tokens 10000",
    "headscope classify EleutherAI/pythia-70m --revision step1000 --types positional,induction",
)
@takes_settings()
def classify(
    model: Model,
    settings: Settings,
    corpus: Corpus = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/MODEL by default.", show_default=False)
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace a run in that folder, and discard an unfinished one; other files stay.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Tag every head of a model with what it does, and write a run folder.

    After a kill or Ctrl-C the same command goes on from the sums kept in .NAME.partial beside it.
    """
    from headscope.models.names import run_name
    from headscope.pipeline import classify as run_classify
    from headscope.views.progress import progress_bar
    from headscope.views.summary import summary

    folder = Path("runs") / run_name(model) if out is None else out

    def tell(line: str) -> None:
        if not quiet:
            warn(f"headscope: {line}")

    with progress_bar(quiet=quiet) as advance:
        run = run_classify(
            model,
            corpus or (),
            settings=settings,
            out=folder,
            overwrite=overwrite,
            progress=advance,
            tell=tell,
        )
    print_rich(summary(run))
    say(f"\nwritten to {folder}; open {folder / 'report.html'}")
    say(f"`headscope why {folder} HEAD` says what a head's tags rest on")
