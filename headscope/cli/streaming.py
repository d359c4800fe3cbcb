"""`headscope streaming`: which heads need no more than the first tokens and the last ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import CAUSES, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import (
    Corpus,
    Device,
    ModelOrRun,
    Overwrite,
    Picture,
    Quiet,
    Revision,
    Seed,
    Tokens,
)
from headscope.cli.terminal import print_rich

Heads = Annotated[
    Path | None,
    typer.Option(help="Write the heads to this .csv file, and the curve to FILE-curve.csv."),
]
Sinks = Annotated[int, typer.Option(help="First keys that a streaming head keeps.")]
Recent = Annotated[int, typer.Option(help="Last keys that it keeps, e.g. 64, 256 or 1024.")]
Tolerance = Annotated[
    float, typer.Option(help="Rise of the loss, in nats per token, that is no loss.")
]
Gates = Annotated[
    Path | None,
    typer.Option(
        help="A file of published gates of key/value heads, such as DuoAttention's "
        "full_attention_heads.tsv, to hold the order against."
    ),
]
Length = Annotated[int, typer.Option(help="Tokens of a window, the model's context at most.")]


@command(
    CAUSES,
    "headscope streaming mini",
    "headscope streaming runs/mini --recent 128 --out streaming.csv --figure streaming.svg",
)
def streaming(
    model: ModelOrRun,
    corpus: Corpus = None,
    sinks: Sinks = 4,
    recent: Recent = 64,
    tolerance: Tolerance = 0.01,
    max_length: Length = 2_048,
    max_tokens: Tokens = 16_384,
    gates: Gates = None,
    out: Heads = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    revision: Revision = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Say which key/value heads may keep sinks and a recent window only, and what that costs."""
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    by_step = None if out is None else out.with_name(f"{out.stem}-curve.csv")
    check_targets((by_step, CSV), overwrite=overwrite)
    from headscope.runs.folder import encoded
    from headscope.runs.tables import table_to_csv
    from headscope.studies.streaming.run import streaming as run_streaming
    from headscope.studies.streaming.view import streaming_lines
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet) as advance:
        found = run_streaming(
            model,
            corpus or (),
            sinks=sinks,
            recent=recent,
            tolerance=tolerance,
            max_length=max_length,
            max_tokens=max_tokens,
            gates=gates,
            seed=seed,
            revision=revision,
            device=device,
            progress=advance,
        )
    more = {} if by_step is None else {by_step: encoded(table_to_csv(found.curve))}
    files = write_study(found, out, figure, more, overwrite=overwrite)
    print_rich(streaming_lines(found))
    say_written(files)
