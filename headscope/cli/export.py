"""Commands that export a run as a figure, a site, or the data of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headscope.cli.app import command
from headscope.cli.files import PICTURES, check_targets, draw, print_written
from headscope.cli.shell_options import Overwrite, Run
from headscope.options import A_RUN
from headscope.runs.write import write_file
from headscope.studies.study_table import DRAW, EXPORT


@command(
    DRAW,
    "Draw a figure of a run.",
    "headscope draw atlas runs/mini --out atlas.pdf",
    "headscope draw atlas runs/mini --kind layers --width 3.3 --out layers.svg",
)
def atlas(
    run: Run,
    out: Annotated[Path, typer.Option(help="A .pdf, .svg or .png file.")] = Path("atlas.pdf"),
    kind: Annotated[
        Literal["atlas", "layers", "relations"],
        typer.Option(
            help="atlas: heads by type; layers: types by layer; relations: best head of each."
        ),
    ] = "atlas",
    width: Annotated[
        float | None,
        typer.Option(
            help="Width in inches, such as 3.3 for a column. Default: the picture's own.",
            show_default=False,
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draw a figure of a run: heads by type, types by layer, or the best head of each relation."""
    check_targets((out, PICTURES), overwrite=overwrite)
    from headscope.run import load

    figure = load(run).figure(kind, width=width)
    write_file(out, draw(figure, out), overwrite=overwrite)
    print_written([out])


@command(
    EXPORT,
    "Write many runs as a static site.",
    "headscope export gallery runs/mini runs/gpt2 --out site",
    "headscope export gallery runs/stages/* --out site --light --overwrite",
)
def gallery(
    runs: Annotated[list[Path], typer.Argument(help=f"{A_RUN}; one or more.")],
    out: Annotated[Path, typer.Option(help="The site's folder, new or empty.")] = Path("site"),
    light: Annotated[
        bool, typer.Option("--light", help="Omit circuitsvis: smaller reports, without eval.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace files of the same names in that folder."),
    ] = False,
) -> None:
    """Write many runs as a static site: an index and every report.

    The site needs no network. It can be opened from the disk, or published as it is.
    """
    from headscope.views.gallery import gallery as write

    index = write(*runs, out=out, light=light, overwrite=overwrite)
    print_written([index])


@command(
    EXPORT,
    "Write head cards: one JSON file per run, to cite.",
    "headscope export cards runs/mini",
    "headscope export cards runs/mini atlas:smollm2 --out cards --overwrite",
)
def cards(
    runs: Annotated[list[Path], typer.Argument(help=f"{A_RUN}; one or more.")],
    out: Annotated[Path, typer.Option(help="Folder of the files, NAME.json each.")] = Path("cards"),
    overwrite: Overwrite = False,
) -> None:
    """Write one JSON file per run: model, text, versions, thresholds, and a record per head.

    A head's record has its tags and near misses with their numbers and verdicts, its direct and
    causal effects if they were measured. hs.load reads the file back.
    """
    from headscope.run import load
    from headscope.runs.cards import card_json
    from headscope.runs.write import write_files
    from headscope.views.gallery import folder_names

    # all cards or none: a run that cannot be read is known before the first file is written
    loaded = [load(run) for run in runs]
    names = folder_names([run.name for run in loaded])
    targets = [out / f"{name}.json" for name in names]
    check_targets(*((target, (".json",)) for target in targets), overwrite=overwrite)
    contents = {target: card_json(run) for target, run in zip(targets, loaded, strict=True)}
    write_files(contents, overwrite=overwrite)
    print_written(targets)
