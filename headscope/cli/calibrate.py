"""`headscope calibrate`: how often tags are right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Corpus, Device, Overwrite, Picture, Quiet, Revision, Tokens
from headscope.cli.terminal import print_rich, warn
from headscope.errors import ArgumentError

if TYPE_CHECKING:
    from headscope.runs.named import Named
    from headscope.views.study import Study

_ZOO = "Try simple habits, and heads that read the annotation, on natural text instead."


_WRITES = "Try tags for what heads write, beside the laziest heads that could be taken for them."
_TOKENS = 128_000


@command(
    COMPARE,
    "headscope calibrate --out planted.csv",
    "headscope calibrate mini --seeds 3",
    "headscope calibrate --writes --out writes.csv",
    "headscope calibrate --zoo --out zoo.csv --figure zoo.pdf",
)
def calibrate(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Also try this architecture with random weights.", autocompletion=complete.models
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write each head's row to this CSV.")] = None,
    figure: Picture = None,
    overwrite: Overwrite = False,
    seeds: Annotated[int, typer.Option(help="Random initialisations of MODEL.")] = 5,
    zoo: Annotated[bool, typer.Option("--zoo", help=_ZOO)] = False,
    writes: Annotated[bool, typer.Option("--writes", help=_WRITES)] = False,
    corpus: Corpus = None,
    max_tokens: Tokens = _TOKENS,
    revision: Revision = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Say how often tags are right, on heads that are known.

    Without --zoo these are hand-built models with noise on every weight, which read text of their
    own: --corpus and --max-tokens are for the zoo.
    """
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    if zoo and model is not None:
        raise ArgumentError(f"--zoo tries no model, and {model} was named; leave out one of them")
    if zoo and writes:
        raise ArgumentError("--zoo are patterns, which write nothing: leave out it or --writes")
    if corpus and not zoo:
        raise ArgumentError("--corpus is what --zoo reads; planted models have their own text")
    if max_tokens != _TOKENS and not zoo:
        raise ArgumentError("--max-tokens is for --zoo; planted models have a text of their own")
    if zoo and (revision is not None or device != "auto"):
        raise ArgumentError("--zoo runs no model: leave --revision and --device out")
    if zoo:
        found, shown = _zoo(corpus or [], max_tokens, quiet)
    else:
        named: Named = {"revision": revision, "device": device}
        found, shown = _planted(model, seeds, quiet, writes, named)
    files = write_study(found, out, figure, overwrite=overwrite)
    for lines in shown:
        print_rich(lines)
    say_written(files)


def _planted(
    model: str | None, seeds: int, quiet: bool, writes: bool, named: Named
) -> tuple[Study, list[object]]:
    """What was found, and what is printed of it."""
    from headscope.studies.validation.calibrate import calibrate as run_calibration
    from headscope.studies.validation.calibrate_view import planted_table, random_table

    tell = (lambda _: None) if quiet else warn
    found = run_calibration(model, seeds=seeds, writes=writes, tell=tell, **named)
    drawn = [] if found.drawn is None else [random_table(found.drawn)]
    return found, [planted_table(found.by_type), *drawn]


def _zoo(corpus: list[Path], max_tokens: int, quiet: bool) -> tuple[Study, list[object]]:
    from headscope.studies.validation.zoo.run import zoo as run_zoo
    from headscope.studies.validation.zoo.view import zoo_lines
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet, doing="scoring the zoo", unit="windows") as advance:
        found = run_zoo(corpus, max_tokens=max_tokens, progress=advance)
    return found, [zoo_lines(found)]
