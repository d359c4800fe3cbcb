"""`headscope ablate`: what breaks without a head, and without what a tag says it looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import CAUSES, command
from headscope.cli.options import Device, OtherText, Overwrite, Quiet, Run, Seed, Source
from headscope.cli.terminal import print_rich, say


@command(
    CAUSES,
    "headscope ablate runs/mini",
    "headscope ablate runs/mini --only edges",
    "headscope ablate runs/mini --heads L4H3,L5H0 --how resample",
)
def ablate(
    run: Run,
    heads: Annotated[str, typer.Option(help="tagged, all, or names such as L5H1,L6H9.")] = "tagged",
    how: Annotated[str, typer.Option(help="mean, zero or resample.")] = "mean",
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="Minimal pairs in BLiMP's format for syntax; repeatable."),
    ] = None,
    only: Annotated[str, typer.Option(help="heads, edges or both.")] = "both",
    queries: Annotated[int, typer.Option(help="Most queries at which a tag is tested.")] = 48,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    source: Source = None,
    corpus: OtherText = None,
    quiet: Quiet = False,
) -> None:
    """Silence heads, and the edges their tags speak of; writes RUN/causal.csv."""
    from headscope.api import Run as Loaded
    from headscope.api import load
    from headscope.runs.beside import check_causes, save_causes
    from headscope.runs.folder import REPORT
    from headscope.studies.ablate.run import ablate as silence
    from headscope.studies.ablate.view import causes_table
    from headscope.views.progress import progress_bar

    loaded = load(run)
    check_causes(run, overwrite=overwrite)
    with progress_bar(quiet=quiet, doing="silencing", unit="steps") as advance:
        found = silence(
            loaded,
            heads=heads,
            how=how,
            pairs=pairs or (),
            only=only,
            queries=queries,
            seed=seed,
            device=device,
            source=source,
            corpus=corpus or (),
            progress=advance,
        )
    path = save_causes(found.run, run, report=Loaded.of(found.run).report, overwrite=overwrite)
    print_rich(causes_table(found.causes))
    say(f"\nwritten to {path}; `headscope why` and {run / REPORT} show it")
