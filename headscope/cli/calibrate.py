"""`headscope calibrate`: how often tags are right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import COMPARE, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import Corpus, Overwrite, Picture, Quiet, Tokens
from headscope.cli.terminal import print_rich, warn
from headscope.errors import ArgumentError

if TYPE_CHECKING:
    from headscope.views.study import Study

_ZOO = "Try simple habits, and heads that read the annotation, on natural text instead."


@command(
    COMPARE,
    "headscope calibrate --out planted.csv",
    "headscope calibrate mini --seeds 3",
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
    corpus: Corpus = None,
    max_tokens: Tokens = 128_000,
    quiet: Quiet = False,
) -> None:
    """Say how often tags are right, on heads that are known.

    Without --zoo these are hand-built models with noise on every weight, which read text of their
    own: --corpus and --max-tokens are for the zoo.
    """
    check_targets((out, CSV), (figure, PICTURES), overwrite=overwrite)
    if zoo and model is not None:
        raise ArgumentError(f"--zoo tries no model, and {model} was named; leave out one of them")
    if corpus and not zoo:
        raise ArgumentError("--corpus is what --zoo reads; planted models have their own text")
    found = _zoo(corpus or [], max_tokens, quiet) if zoo else _planted(model, seeds, quiet)
    say_written(write_study(found, out, figure, overwrite=overwrite))


def _planted(model: str | None, seeds: int, quiet: bool) -> Study:
    from headscope.studies.validation.calibrate import calibrate as run_calibration
    from headscope.studies.validation.calibrate_view import planted_table, random_table

    found = run_calibration(model, seeds=seeds, tell=(lambda _: None) if quiet else warn)
    print_rich(planted_table(found.by_type))
    if found.drawn is not None:
        print_rich(random_table(found.drawn))
    return found


def _zoo(corpus: list[Path], max_tokens: int, quiet: bool) -> Study:
    from headscope.studies.validation.zoo.run import zoo as run_zoo
    from headscope.studies.validation.zoo.view import zoo_lines
    from headscope.views.progress import progress_bar

    with progress_bar(quiet=quiet, doing="scoring the zoo", unit="windows") as advance:
        found = run_zoo(corpus, max_tokens=max_tokens, progress=advance)
    print_rich(zoo_lines(found))
    return found
