"""Commands about what is known: models, what ships, published heads, planted heads."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, print_rich


@app.command()
def models() -> None:
    """Say which models headscope loads, and how to name them."""
    from headscope.families import describe_models

    print_rich(describe_models())


@app.command()
def data(
    check: Annotated[bool, typer.Option("--check", help="Count and check every file.")] = False,
) -> None:
    """List what ships with headscope and where it lies."""
    from headscope.stock import check_all, check_table, stock_table

    if not check:
        print_rich(stock_table())
        return
    checks = check_all()
    print_rich(check_table(checks))
    if not all(each.holds for each in checks):
        raise typer.Exit(1)


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    published: Annotated[
        str | None, typer.Option("--as", help="The published name, e.g. gpt2-small.")
    ] = None,
    measure: Annotated[
        bool, typer.Option(help="Run the model on the published stimulus, if it is at hand.")
    ] = True,
) -> None:
    """Compare a run with published heads and scores of the same model."""
    from headscope.store import load
    from headscope.summary import verification_lines
    from headscope.verify import verify as compare

    result = compare(load(run), model=published, measure=measure)
    print_rich(verification_lines(result))
    if not result.holds:
        raise typer.Exit(1)


@app.command()
def calibrate(
    model: Annotated[
        str | None, typer.Argument(help="Also try this architecture with random weights.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write each head's row to this CSV.")] = None,
    seeds: Annotated[int, typer.Option(help="Random initialisations of MODEL.")] = 5,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Say how often tags are right, on models whose heads are known."""
    from headscope.calibration.show import planted_table, random_table, run_calibration

    say = (lambda _: None) if quiet else (lambda text: print(text, file=sys.stderr))
    planted, drawn = run_calibration(model, seeds=seeds, out=out, say=say)
    print_rich(planted_table(planted))
    if drawn is not None:
        print_rich(random_table(drawn))
