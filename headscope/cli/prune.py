"""`headscope prune`: how many heads are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.cli import complete
from headscope.cli.app import CAUSES, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import (
    Corpus,
    Device,
    Model,
    Overwrite,
    Picture,
    Quiet,
    Revision,
    Seed,
    Tokens,
)
from headscope.cli.terminal import print_rich
from headscope.errors import HeadscopeError

Classified = Annotated[
    Path | None,
    typer.Option(
        help="A run folder of this model: heads are pruned by type too.",
        autocompletion=complete.runs,
    ),
]
Curve = Annotated[
    Path | None,
    typer.Option(help="Write the curve to this .csv file, and each head to FILE-heads.csv."),
]
Smaller = Annotated[
    Path | None,
    typer.Option(help="Write a smaller model with the most important heads; needs --keep."),
]
Keep = Annotated[float | None, typer.Option(help="Share of every layer's heads to keep, e.g. 0.5.")]


@command(
    CAUSES,
    "headscope prune mini --run runs/mini --figure prune.pdf --out prune.csv",
    "headscope prune mini --save smaller --keep 0.5",
)
def prune(
    model: Model,
    run: Classified = None,
    corpus: Corpus = None,
    max_tokens: Tokens = 8_192,
    out: Curve = None,
    figure: Picture = None,
    save: Smaller = None,
    keep: Keep = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    revision: Revision = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Rank heads by importance, and say what the loss is as more and more are masked."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    by_head = None if out is None else out.with_name(f"{out.stem}-heads.csv")
    check_targets((by_head, CSV), overwrite=overwrite)
    if (save is None) != (keep is None):
        raise HeadscopeError("--save FOLDER and --keep SHARE go together; one of them is missing")
    from headscope.measure.text_loss import MAX_LENGTH
    from headscope.runs.named import the_model, the_run
    from headscope.studies.prune.run import prune as run_prune
    from headscope.studies.prune.smaller import check_smaller, save_smaller
    from headscope.studies.prune.view import prune_lines, smaller_lines
    from headscope.views.progress import progress_bar

    classified, smaller = None if run is None else the_run(run), None
    with progress_bar(quiet=quiet) as advance:
        loaded = the_model(model, revision=revision, device=device, longest=MAX_LENGTH)
        if save is not None and keep is not None:
            check_smaller(loaded, keep, save)
        found = run_prune(
            loaded, corpus or (), run=classified, max_tokens=max_tokens, seed=seed, progress=advance
        )
        if save is not None and keep is not None:
            smaller = save_smaller(loaded, found.importance, keep, save, text=found.text)
    more = {} if by_head is None else {by_head: _csv(found.heads)}
    files = write_study(found, out, figure, more, overwrite=overwrite)
    print_rich(prune_lines(found))
    if smaller is not None:
        print_rich(smaller_lines(smaller))
    say_written(files if save is None else [save, *files])


def _csv(table: Any) -> bytes:
    from headscope.runs.tables import table_to_csv

    return table_to_csv(table).encode("utf-8")
