"""Commands that change a model to see what breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, print_rich, write_file


@app.command()
def ablate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    heads: Annotated[str, typer.Option(help="tagged, all, or names such as L5H1,L6H9.")] = "tagged",
    how: Annotated[str, typer.Option(help="mean, zero or resample.")] = "mean",
    pairs: Annotated[
        list[Path] | None,
        typer.Option(help="Minimal pairs in BLiMP's format for syntax; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds every draw.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Silence heads and measure what their types predict; writes RUN/causal.csv."""
    from dataclasses import replace

    from headscope.causal import causes_table, write_causes
    from headscope.folder import REPORT
    from headscope.interventions.causes import ablate as silence
    from headscope.progress import progress_bar
    from headscope.store import load

    loaded = load(run)
    with progress_bar(quiet=quiet, doing="silencing heads", unit="runs") as advance:
        table = silence(
            loaded, heads=heads, how=how, pairs=pairs or (), seed=seed, progress=advance
        )
    path = write_causes(table, run)
    write_file(run / REPORT, replace(loaded, causes=table).report().encode("utf-8"))
    print_rich(causes_table(table))
    print(f"\nwritten to {path}; `headscope why` and {run / REPORT} show it")
