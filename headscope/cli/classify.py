"""The command `classify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.cli.app import command
from headscope.cli.shell_options import Corpus, HelpAll, Model, Printed, takes_settings
from headscope.cli.terminal import message, print_folded, print_rich, print_text, put, warn
from headscope.printing import one_line
from headscope.settings import Settings
from headscope.studies.study_table import TOP

if TYPE_CHECKING:
    from headscope.statistics.result import Result


@command(
    TOP,
    "Classify every head of a model; write a run folder.",
    "headscope classify mini",
    "headscope classify smollm2 --quick",
    "headscope classify gpt2 --corpus my_texts/ --max-tokens 10000",
    "headscope classify EleutherAI/pythia-70m --revision step1000 --types positional,induction",
)
@takes_settings(basic=("types", "quick", "max_tokens", "device"))
def classify(
    model: Model,
    settings: Settings,
    corpus: Corpus = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/MODEL.", show_default=False)
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace the run in that folder, finished or not; other files stay.",
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print no progress.", hidden=True)
    ] = False,
    format: Printed = "table",
    help_all: HelpAll = False,
) -> None:
    """Tag every head of a model with what it does, and write a run folder.

    On two cores SmolLM2 (135M) takes about 3 minutes and 2 GB of memory.
    A run of 20 seconds or more first prints an estimate of both.
    Interrupted? Repeat the command to resume.
    """
    from headscope.models.locate import run_name
    from headscope.run import classify as run_classify
    from headscope.runs.listing import list_heads
    from headscope.runs.tables import HEAD_TABLE, write_rows
    from headscope.views.summary import summary

    # a folder is always written: a run takes minutes, and all other commands read one
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
        progress=not quiet,
        on_message=on_message,
    )
    # tables for programs go to standard output, with nothing around them
    name = one_line(folder)
    if format != "table":
        put(write_rows(HEAD_TABLE.with_names(list_heads(run)), format))
        warn(f"written to {name}")
        return
    print_rich(summary(run))
    print_text(f"\nwritten to {name}; open {one_line(folder / 'report.html')}")
    print_text(next_step(run, name))
    if run.preliminary:
        print_folded(run.preliminary)


def next_step(run: Result, name: str) -> str:
    """The command that explains the clearest head of a run, and what it prints."""
    from headscope.runs.listing import clearest_head

    command_line = f"headscope why {name} {clearest_head(run)}"
    if run.evidence["tagged"].any():
        return f"next: {command_line} prints the evidence for its tags"
    return f"no head has a tag; next: {command_line} prints the relations that came closest"
