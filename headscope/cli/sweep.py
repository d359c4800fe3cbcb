"""`headscope sweep`: many runs, a folder each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headscope.cli.app import MEASURE, command
from headscope.cli.options import Address, Quiet, Workers
from headscope.cli.settings import takes_settings
from headscope.cli.terminal import print_rich, say, warn

_LIST = "repeatable, or separated by commas"


File = Annotated[
    Path | None,
    typer.Argument(help="YAML with models, revisions, corpora, out and classify's settings."),
]
Models = Annotated[
    list[str] | None, typer.Option(help=f"As for classify; {_LIST}.", show_default=False)
]
Revisions = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Of each model on the hub, or folders inside a local one; {_LIST}.",
        show_default=False,
    ),
]
Corpora = Annotated[
    list[str] | None,
    typer.Option(help="A corpus of its own for each; repeatable; what ships by default."),
]
Out = Annotated[Path | None, typer.Option(help="The sweep's folder; runs/FILE by default.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what there is to do, and what it may cost.")
]


@command(
    MEASURE,
    "headscope sweep stages.yaml --dry-run",
    "headscope sweep --models checkpoints/ --revisions step128,step1000 --out runs/stages",
)
@takes_settings(without=("revision", "adapter"), said=True)
def sweep(
    settings: dict[str, Any],
    file: File = None,
    models: Models = None,
    revisions: Revisions = None,
    corpus: Corpora = None,
    out: Out = None,
    engine_workers: Workers = None,
    address: Address = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Classify models × revisions × corpora: a run folder each, sweep.json and sweep.csv.

    Options replace the file's keys. Runs that are complete are kept, so that the same command goes
    on after a stop. What fails is named in sweep.csv and at the end, with exit code 1; a dry run
    that finds what would fail ends with 2.
    """
    asked = {
        "models": _names(models),
        "revisions": _names(revisions),
        "corpora": corpus,
        "out": None if out is None else str(out),
        **settings,
    }
    if dry_run:
        _print_plan(file, asked, engine_workers, address)
    else:
        _run(file, asked, engine_workers, address, quiet=quiet)


def _run(
    file: Path | None,
    asked: dict[str, Any],
    workers: int | None,
    address: str | None,
    *,
    quiet: bool,
) -> None:
    """Do what there is to do; ends with 1 if something of it failed."""
    from headscope.studies.sweep.cells import TABLE
    from headscope.studies.sweep.run import sweep as run_sweep
    from headscope.studies.sweep.view import sweep_lines
    from headscope.views.progress import progress_bar

    tell = (lambda _: None) if quiet else warn
    try:
        with progress_bar(quiet=quiet) as advance:
            found = run_sweep(
                file, workers=workers, address=address, progress=advance, tell=tell, **asked
            )
    except KeyboardInterrupt:
        warn("headscope: stopped; complete runs are kept, and the same command goes on")
        raise typer.Exit(130) from None
    print_rich(sweep_lines(found.cells))
    say(f"\nwritten to {found.out}; see {found.out / TABLE}")
    if any(cell.error for cell in found.cells):
        raise typer.Exit(1)


def _print_plan(
    file: Path | None, asked: dict[str, Any], workers: int | None, address: str | None
) -> None:
    """What there is to do; ends with 2 if something of it would fail."""
    from headscope.studies.sweep.plan import plan, plan_lines
    from headscope.studies.sweep.processes import workers_of
    from headscope.studies.sweep.spec import read_spec

    spec = read_spec(file, **asked)
    count, _ = workers_of(workers, address)
    plans = plan(spec)
    print_rich(plan_lines(plans, spec, count))
    if any(each.error for each in plans):
        raise typer.Exit(2)


def _names(given: list[str] | None) -> list[str]:
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]
