"""`headscope sweep` and `headscope emergence`: many runs, and what comes along the revisions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, check_targets, draw, print_rich, write_files
from headscope.cli.look import Format

_LIST = "repeatable, or separated by commas"


@app.command()
def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(help="YAML with models, revisions, corpora, out and classify's settings."),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(help=f"As for classify; {_LIST}.", show_default=False)
    ] = None,
    revisions: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Of each model on the hub, or folders inside a local one; {_LIST}.",
            show_default=False,
        ),
    ] = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(help="A corpus of its own for each; repeatable; what ships by default."),
    ] = None,
    types: Annotated[str | None, typer.Option(help="Head types, separated by commas.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder; runs/FILE by default.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of text for each run.")] = None,
    twin: Annotated[bool | None, typer.Option(help="Compare with shuffled twins.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seeds every draw.")] = None,
    engine_workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes that hold the model, by Ray; 0 for this one alone. By default a core "
            "each, 4 at most.",
            show_default=False,
        ),
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="A running Ray cluster; a local one is started if none.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what there is to do, and what it may cost.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Classify models × revisions × corpora: a run folder each, sweep.json and sweep.csv.

    Options replace the file's keys. Runs that are complete are kept, so that the same command goes
    on after a stop. What fails is named in sweep.csv and at the end, with exit code 1.
    """
    from headscope.sweep.spec import read_spec

    spec = read_spec(
        file, models=_names(models), revisions=_names(revisions), corpora=corpus, types=types,
        out=None if out is None else str(out), max_tokens=max_tokens, twin=twin, seed=seed,
    )  # fmt: skip
    from headscope.sweep.processes import measurer_of, workers_of

    workers, note = workers_of(engine_workers, address)
    if dry_run:
        from headscope.sweep.plan import plan, plan_lines

        print_rich(plan_lines(plan(spec), spec, workers))
        return
    from headscope.progress import progress_bar
    from headscope.sweep.cells import TABLE
    from headscope.sweep.show import sweep_lines
    from headscope.sweep.sweep import sweep as run_sweep

    if note:
        print(f"headscope: {note}", file=sys.stderr)
    say = (lambda _: None) if quiet else (lambda line: print(line, file=sys.stderr))
    try:
        with progress_bar(quiet=quiet) as advance, measurer_of(workers, address) as measurer:
            cells = run_sweep(spec, measurer=measurer, progress=advance, say=say)
    except KeyboardInterrupt:
        print("headscope: stopped; complete runs are kept, and the same command goes on",
              file=sys.stderr)  # fmt: skip
        raise typer.Exit(130) from None
    print_rich(sweep_lines(cells))
    print(f"\nwritten to {spec.out}; see {spec.out / TABLE}")
    if any(cell.error for cell in cells):
        raise typer.Exit(1)


@app.command()
def emergence(
    sweep: Annotated[Path, typer.Argument(help="A sweep's folder.")],
    out: Annotated[Path | None, typer.Option(help="Write the table to this .csv file.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw it: a .png, .svg or .pdf file.")] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
) -> None:
    """Say how many heads of each type exist at each revision of a sweep."""
    check_targets(out, figure)
    from headscope.listing import write_heads
    from headscope.sweep.cells import read_cells
    from headscope.sweep.emergence import emergence as count
    from headscope.sweep.show import emergence_figure, emergence_lines

    table = count(read_cells(sweep))
    files = {out: write_heads(table, "csv").encode("utf-8")} if out else {}
    if figure:
        files[figure] = draw(emergence_figure(table), figure)
    if format is Format.table:
        print_rich(emergence_lines(table))
    else:
        print(write_heads(table, format.value), end="")
    write_files(files, tell=format is Format.table)


def _names(given: list[str] | None) -> list[str]:
    return [name.strip() for text in given or () for name in text.split(",") if name.strip()]
