"""`headscope explain`: each head as a rule, and the model that runs on its rules."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from headscope.cli.app import CAUSES, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import (
    Device,
    ModelOrRun,
    OtherText,
    Overwrite,
    Picture,
    Quiet,
    Revision,
    Seed,
    Table,
)
from headscope.cli.terminal import print_rich


class Each(StrEnum):
    """What is run on rules."""

    none = "none"
    all = "all"
    layer = "layer"
    head = "head"


@command(
    CAUSES,
    "headscope explain mini --out rules.csv --figure coverage.pdf",
    "headscope explain runs/mini --features 12 --each layer",
)
def explain(
    model: ModelOrRun,
    features: Annotated[int, typer.Option(help="Most features of a rule.")] = 8,
    rank: Annotated[int, typer.Option(help="Of the content term beside the rule; 0 for none.")] = 4,
    windows: Annotated[int, typer.Option(help="Windows of text to read.")] = 56,
    each: Annotated[
        Each, typer.Option(help="What to run on rules: all heads, also each layer, each head.")
    ] = Each.all,
    out: Table = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    revision: Revision = None,
    device: Device = "auto",
    corpus: OtherText = None,
    quiet: Quiet = False,
) -> None:
    """Say what each head does as a small rule, and run the model on its rules."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.studies.explain.run import explain as explain_heads
    from headscope.studies.explain.view import explanation_lines
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet, doing="explaining heads", unit="steps") as advance:
        found = explain_heads(
            model,
            corpus or (),
            features=features,
            rank=rank,
            windows=windows,
            each=each.value,
            seed=seed,
            revision=revision,
            device=device,
            progress=advance,
        )
    files = write_study(found, out, figure, overwrite=overwrite)
    print_rich(explanation_lines(found))
    say_written(files)
