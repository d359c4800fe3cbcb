"""Commands that measure: `classify`, `sweep`, `languages`, `weights`, `anatomy`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import command
from headscope.cli.options import (
    Corpus,
    Format,
    Model,
    Quiet,
    takes_settings,
)
from headscope.cli.study_command import StudyCall, body
from headscope.cli.terminal import message, print_rich, put, say, shown_progress
from headscope.errors import HeadscopeError
from headscope.printing import one_line
from headscope.settings import Settings
from headscope.studies.study_table import TOP


@command(
    TOP,
    "What does each head do? Writes a run folder.",
    "headscope classify mini",
    "headscope classify smollm2 --quick",
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
    from headscope.measure.readable import readable

    readable(corpus or None, seed=settings.seed)  # before torch is imported, which takes seconds
    from headscope.classification import classify as run_classify
    from headscope.models.locate import run_name
    from headscope.runs.listing import clearest_head
    from headscope.views.summary import summary

    folder = Path("runs") / run_name(model) if out is None else out

    def on_message(line: str) -> None:
        if not quiet:
            message(line)

    run = run_classify(
        model,
        corpus or None,
        settings=settings,
        out=folder,
        overwrite=overwrite,
        progress=shown_progress(quiet),
        tell=on_message,
    )
    print_rich(summary(run))
    name = one_line(folder)
    say(f"\nwritten to {name}; open {one_line(folder / 'report.html')}")
    say(f"next: headscope why {name} {clearest_head(run)} says what its tags rest on")
    if run.preliminary:
        say(run.preliminary)


class WeightTable(StrEnum):
    """The table that `weights` prints."""

    heads = "heads"
    composition = "composition"
    writes = "writes"
    related = "related"


Shape = Annotated[
    str | None,
    typer.Argument(
        help="As for classify; also a config.json, a folder without weights, or a published "
        "shape such as gpt-2-s. The published shapes if none.",
        autocompletion=complete.models,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        help="Tokens in the cache; the model's longest input (4,096 for published shapes).",
        show_default=False,
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(help="Sequences in the cache; 1 (8 for the list).", show_default=False),
]
Published = Annotated[bool, typer.Option("--published", help="List the published shapes.")]


@body("anatomy")
def anatomy(
    call: StudyCall,
    model: Shape = None,
    published: Published = False,
    context: Context = None,
    batch: Batch = None,
) -> None:
    """Count a model's parameters, by formula and as they are, and its key/value cache."""
    if model is None or published:
        if model is not None or call.arguments["revision"] is not None:
            option = "--revision" if model is None else f"{model} and --published"
            raise HeadscopeError(f"{option}: the list of published shapes takes no model")
        _print_published(context, batch, call)
        return
    anatomies = call.result(batch=1 if batch is None else batch)
    call.show(anatomies, [])


def _print_published(context: int | None, batch: int | None, call: StudyCall) -> None:
    from headscope.runs.listing import write_heads
    from headscope.studies.anatomy.anatomy_view import published_lines
    from headscope.studies.anatomy.published import BATCH, CONTEXT, published_shapes

    table = published_shapes(
        context=CONTEXT if context is None else context,
        batch=BATCH if batch is None else batch,
        dtype=call.arguments["dtype"],
    )
    if call.format is Format.table:
        print_rich(published_lines(table))
    else:
        put(write_heads(table, call.format.value))
