"""The command line. A command parses, calls one library function, and prints or writes.

Heavy imports happen inside the commands, so that `headscope --help` answers at once.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.errors import HeadscopeError

if TYPE_CHECKING:
    pass

app = typer.Typer(
    help="What does each attention head of a pretrained transformer do, and how sure are we?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Format(StrEnum):
    """How `heads` prints."""

    table = "table"
    csv = "csv"
    json = "json"


def main() -> None:
    """Run the command line; what a user can put right ends with one message and exit code 2."""
    try:
        app()
    except HeadscopeError as error:
        print(f"headscope: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("headscope: stopped; nothing was written", file=sys.stderr)
        sys.exit(130)


@app.command()
def classify(
    model: Annotated[
        str, typer.Argument(help="mini, a hub name such as gpt2, a folder, or a .gguf file.")
    ],
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="CoNLL-U or plain text: a file or a folder; repeatable; ours by default."
        ),
    ] = None,
    types: Annotated[
        str | None, typer.Option(help="Head types to score, separated by commas; all by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/MODEL by default.", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace a run in that folder.")] = False,
    max_tokens: Annotated[int, typer.Option(help="Tokens of text to read at most.")] = 40_000,
    max_length: Annotated[int, typer.Option(help="Longest window in tokens.")] = 256,
    device: Annotated[str, typer.Option(help="cpu, cuda, …; auto takes a GPU if there is one.")] = (
        "auto"
    ),
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit on the hub, e.g. step1000.")
    ] = None,
    bos: Annotated[
        str | None,
        typer.Option(help="Token to put before each document, if not the tokenizer's own BOS."),
    ] = None,
    twin: Annotated[
        bool, typer.Option(help="Compare with the model's shuffled twin, which learned nothing.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seeds every draw.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Tag every head of a model with what it does, and write a run folder."""
    from headscope.pipeline import classify as run_classify
    from headscope.progress import progress_bar
    from headscope.summary import summary

    folder = out or Path("runs") / Path(model).name.removesuffix(".gguf")
    with progress_bar(quiet=quiet) as advance:
        run = run_classify(
            model,
            corpus or (),
            types=[name.strip() for name in types.split(",")] if types else None,
            out=folder,
            overwrite=overwrite,
            max_tokens=max_tokens,
            max_length=max_length,
            twin=twin,
            seed=seed,
            revision=revision,
            device=device,
            dtype=dtype,
            bos=bos,
            progress=advance,
        )
    _print(summary(run))
    print(f"\nwritten to {folder}; next: headscope why {folder} HEAD")


@app.command()
def heads(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    type: Annotated[
        str | None, typer.Option(help="Only heads with this tag, or unclassified.")
    ] = None,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
) -> None:
    """List the heads of a run, the strongest first."""
    from headscope.listing import list_heads, write_heads
    from headscope.store import load
    from headscope.summary import head_lines

    chosen = list_heads(load(run), type)
    if format is Format.table:
        _print(head_lines(chosen))
    else:
        print(write_heads(chosen, format.value), end="")


@app.command()
def why(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    head: Annotated[str, typer.Argument(help="L5H1 or 5.1 for layer 5, head 1.")],
) -> None:
    """Show each condition of a head's tags with its number, and the near misses."""
    from headscope.store import load

    print(load(run).why(head))


@app.command()
def models() -> None:
    """Say which models headscope loads, and how to name them."""
    from headscope.families import describe_models

    _print(describe_models())


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
    _print(verification_lines(result))
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
    _print(planted_table(planted))
    if drawn is not None:
        _print(random_table(drawn))


@app.command()
def data(
    check: Annotated[bool, typer.Option("--check", help="Count and check every file.")] = False,
) -> None:
    """List what ships with headscope and where it lies."""
    from headscope.stock import check_all, check_table, stock_table

    if not check:
        _print(stock_table())
        return
    checks = check_all()
    _print(check_table(checks))
    if not all(each.holds for each in checks):
        raise typer.Exit(1)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"headscope {installed('headscope')}")
        raise typer.Exit


def _print(what: object) -> None:
    from rich.console import Console

    # a pipe has no width: do not fold rows for it
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(what, highlight=False)
