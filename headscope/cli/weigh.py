"""`headscope weights`: what the weights alone say."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, check_suffix, print_rich, write_file
from headscope.cli.look import Format
from headscope.errors import HeadscopeError


class Table(StrEnum):
    """Which table `weights` prints."""

    heads = "heads"
    composition = "composition"
    writes = "writes"


@app.command()
def weights(
    model: Annotated[str, typer.Argument(help="A model as for classify, or a run folder.")],
    table: Annotated[
        Table, typer.Option(help="A row per head, or the pairs by K-composition or by writes.")
    ] = Table.heads,
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Write a .csv or .json file instead of printing.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit on the hub, e.g. step1000.")
    ] = None,
    bos: Annotated[
        str | None, typer.Option(help="As for classify, for a model without a BOS token.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seeds the random baseline.")] = 0,
) -> None:
    """Say what each head's weights show, without text: OV copying, K-composition, writes.

    Evidence, not labels: copying alone is no label. GPT-2's negative head L11H10, which lowers the
    logit of what it attends to, has a published copying score of +0.996. Give a run folder to see
    the patterns' evidence beside it.
    """
    if out is not None:
        suffix = check_suffix(out, ".csv", ".json").removeprefix(".")
        if format not in (Format.table, suffix):
            raise HeadscopeError(f"{out}: this name asks for {suffix}, and --format for {format}")

    from headscope.circuits.show import weight_lines
    from headscope.circuits.weigh import weights as weigh
    from headscope.listing import write_heads

    found = weigh(model, revision=revision, bos=bos, seed=seed)
    rows = getattr(found, table.value)
    if out is not None:
        write_file(out, write_heads(rows, suffix).encode("utf-8"))
        print(f"written to {out}")
    elif format is Format.table:
        print_rich(weight_lines(found, table.value))
    else:
        print(write_heads(rows, format.value), end="")
