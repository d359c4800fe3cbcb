"""`headscope collapse`: what it is worth that heads attend differently."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli.app import CAUSES, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import (
    Corpus,
    Device,
    ModelOrRun,
    Overwrite,
    Picture,
    Quiet,
    Revision,
    Seed,
    Table,
    Tokens,
)
from headscope.cli.terminal import print_rich


@command(
    CAUSES,
    "headscope collapse mini --mixing --out collapse.csv",
    "headscope collapse mini --figure collapse.pdf",
)
def collapse(
    model: ModelOrRun,
    corpus: Corpus = None,
    max_tokens: Tokens = 8_192,
    out: Table = None,
    figure: Picture = None,
    mixing: Annotated[
        bool, typer.Option("--mixing", help="Also put an identity in W_O's place, layer by layer.")
    ] = False,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    revision: Revision = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Say what head diversity is worth: the loss when a layer's heads share one pattern."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.collapse.run import collapse as run_collapse
    from headscope.studies.collapse.view import collapse_lines
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet) as advance:
        found = run_collapse(
            model,
            corpus or (),
            mixing=mixing,
            max_tokens=max_tokens,
            seed=seed,
            revision=revision,
            device=device,
            progress=advance,
        )
    files = write_study(found, out, figure, overwrite=overwrite)
    print_rich(collapse_lines(found))
    say_written(files)
