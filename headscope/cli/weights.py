"""`headscope weights`: what the weights alone say."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import MEASURE, command
from headscope.cli.files import check_targets, say_written
from headscope.cli.options import Device, Format, ModelOrRun, Overwrite, Printed, Revision, Source
from headscope.cli.terminal import print_rich, put
from headscope.errors import HeadscopeError
from headscope.runs.write import write_file


class Table(StrEnum):
    """Which table `weights` prints."""

    heads = "heads"
    composition = "composition"
    writes = "writes"
    related = "related"


@command(
    MEASURE,
    "headscope weights mini",
    "headscope weights runs/mini --table composition --out composition.csv",
    "headscope weights mini --table related --out related.csv",
    "headscope weights runs/mini --keep",
)
def weights(
    model: ModelOrRun,
    table: Annotated[
        Table,
        typer.Option(
            help="A row per head, the pairs by K-composition or by writes, or (related) what heads "
            "make of words: opposites, past tenses, capitals, …"
        ),
    ] = Table.heads,
    format: Printed = Format.table,
    out: Annotated[
        Path | None, typer.Option(help="Write a .csv or .json file instead of printing.")
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Of a run: put whose writes each head's keys read most into RUN/keys_from.csv; "
            "the report draws it.",
        ),
    ] = False,
    overwrite: Overwrite = False,
    revision: Revision = None,
    device: Device = "cpu",
    source: Source = None,
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
    check_targets((out, (".csv", ".json")), overwrite=overwrite)
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    if format not in (Format.table, suffix or format):
        raise HeadscopeError(f"{out}: this name asks for {suffix}, and --format for {format}")
    from headscope.api import Run, load
    from headscope.runs.beside import save_keys_from
    from headscope.runs.listing import write_heads
    from headscope.studies.weights.run import weights as weigh
    from headscope.studies.weights.view import weight_lines

    folder = _kept_in(model, overwrite=overwrite) if keep else None
    found = weigh(
        model,
        revision=revision,
        device=device,
        bos=bos,
        seed=seed,
        source=source,
        related=table is Table.related,
    )
    rows = getattr(found, table.value)
    if out is not None:
        write_file(out, write_heads(rows, suffix).encode("utf-8"), overwrite=overwrite)
        say_written([out])
    elif format is Format.table:
        print_rich(weight_lines(found, table.value))
    else:
        put(write_heads(rows, format.value))
    if folder is not None:
        known = Run.of(found.put_into(load(folder)))
        say_written([save_keys_from(known, folder, report=known.report, overwrite=overwrite)])


def _kept_in(model: str, *, overwrite: bool) -> Path:
    from headscope.runs.beside import check_keys_from
    from headscope.runs.folder import is_run

    folder = Path(model)
    if not is_run(folder):
        raise HeadscopeError(f"--keep puts a table into a run's folder, and {model} is no run")
    check_keys_from(folder, overwrite=overwrite)
    return folder
