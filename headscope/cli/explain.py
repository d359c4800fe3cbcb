"""`headscope explain`: each head as a rule, and the model that runs on its rules."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
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
from headscope.cli.terminal import print_rich, say


class Each(StrEnum):
    """What is run on rules."""

    none = "none"
    all = "all"
    size = "size"
    type = "type"
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
        Each,
        typer.Option(
            help="What to run on rules: all heads, also smaller rules, each type, layer, head."
        ),
    ] = Each.all,
    propose: Annotated[
        bool, typer.Option("--propose", help="Print relation files for frequent rules instead.")
    ] = False,
    twin: Annotated[
        bool, typer.Option(help="Explain the twin, whose attention weights are shuffled, too.")
    ] = True,
    out: Table = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    revision: Revision = None,
    device: Device = "auto",
    corpus: OtherText = None,
    quiet: Quiet = False,
) -> None:
    """Say what each head does as a small rule, and run the model on its rules.

    Of a run it also writes RUN/rules.csv, which `headscope why` and the report show.
    """
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    from headscope.api import Run, load
    from headscope.runs.beside import check_rules, save_rules
    from headscope.runs.folder import is_run
    from headscope.studies.explain.run import explain as explain_heads
    from headscope.studies.explain.view import explanation_lines
    from headscope.views.progress import progress_bar

    folder = Path(model) if is_run(Path(model)) else None
    run = None if folder is None else load(folder)
    if folder is not None:
        check_rules(folder, overwrite=overwrite)
    with progress_bar(quiet=quiet, doing="explaining heads", unit="steps") as advance:
        found = explain_heads(
            run or model,
            corpus or (),
            features=features,
            rank=rank,
            windows=windows,
            each=each.value,
            twin=twin,
            seed=seed,
            revision=revision,
            device=device,
            progress=advance,
        )
    files = write_study(found, out, figure, overwrite=overwrite)
    if run is not None and folder is not None:
        known = Run.of(found.put_into(run))
        files.append(save_rules(known, folder, report=known.report, overwrite=overwrite))
    if propose:
        say(found.proposals())
    else:
        print_rich(explanation_lines(found))
    say_written(files)
