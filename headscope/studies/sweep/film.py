"""The atlas along the revisions of a sweep as one page with a slider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.printing import visible
from headscope.runs.resolve import the_run
from headscope.statistics.result import Result, layers_of
from headscope.studies.sweep.counts import in_order
from headscope.studies.sweep.sweep_cells import COMPLETE, Cell
from headscope.views.colours import is_resting, legend_groups, letter
from headscope.views.html_page import fill_page, page_file, style_class
from headscope.views.report.data import to_json

_HERE = "headscope.studies.sweep"


@dataclass(frozen=True, eq=False)
class Reel:
    """The revisions of one model on one text, each with its heads, in the order of their steps."""

    title: str
    revisions: tuple[str, ...]
    rows: tuple[str, ...]
    """The layers' names."""
    width: int
    """Heads of a layer."""
    frames: tuple[dict[str, list[Any]], ...]
    """Of each revision, head by head through the layers: `types`, `lifts` and `tags`."""


def film_html(folder: Path, cells: Sequence[Cell]) -> str:
    """A sweep's atlases as one HTML page that asks no network.

    Args:
        folder: the sweep's folder.
        cells: its cells; what is not complete is left out.

    Raises:
        RunError: no cell is complete, a run cannot be read, or revisions have different shapes.
    """
    complete = in_order(cell for cell in cells if cell.status == COMPLETE)
    if not complete:
        raise RunError(
            f"none of the {len(cells)} runs of this sweep is complete; "
            "run headscope sweep run again"
        )
    groups = groupby(complete, key=lambda cell: (cell.model, cell.corpus))
    return page([_reel(folder, list(folder_runs)) for _, folder_runs in groups])


def _reel(folder: Path, cells: Sequence[Cell]) -> Reel:
    runs = [(cell.revision or "", the_run(folder / cell.folder)) for cell in cells]
    names = [Path(cells[0].model.rstrip("/")).name or cells[0].model]
    names += [Path(path).stem for path in cells[0].corpus]
    return reel(" on ".join(names[:2]) + "".join(f" + {name}" for name in names[2:]), runs)


def reel(title: str, runs: Iterable[tuple[str, Result]]) -> Reel:
    """One model's revisions.

    Args:
        title: what the page calls them.
        runs: each revision's name and run, in order.

    Raises:
        RunError: they have different shapes.
    """
    listed = list(runs)
    first = listed[0][1]
    shape = layers_of(first), int(first.heads["head"].max()) + 1
    for revision, run in listed:
        size = layers_of(run), int(run.heads["head"].max()) + 1
        if size != shape:
            raise RunError(
                f"{title}: {revision or 'a revision'} has {len(size[0])} × {size[1]} heads "
                f"and {listed[0][0] or 'the first'} {len(shape[0])} × {shape[1]}; "
                "a film has one shape"
            )
    return Reel(
        title,
        tuple(revision for revision, _ in listed),
        tuple(first.head_names.row(layer) for layer in shape[0]),
        shape[1],
        tuple(_frame(run) for _, run in listed),
    )


def _frame(run: Result) -> dict[str, list[Any]]:
    heads = run.heads.sort_values(["layer", "head"])
    names = [head_name(row.layer, row.head, run.head_names) for row in heads.itertuples()]
    return {
        "names": names,
        "types": [str(name) for name in heads["primary"]],
        "lifts": [None if lift != lift else round(float(lift), 2) for lift in heads["lift"]],
        "tags": [str(tags).replace(";", ", ") for tags in heads["tags"]],
    }


def page(reels: Sequence[Reel]) -> str:
    """The page of some reels."""
    present = {name for reel in reels for frame in reel.frames for name in frame["types"]}
    legend = [name for group in legend_groups(present).values() for name in group]
    data = {
        "types": [
            {
                "name": name,
                "letter": letter(name),
                "look": style_class(name),
                "rests": is_resting(name),
            }
            for name in legend
        ],
        "reels": [
            {
                "title": visible(reel.title),
                "revisions": [visible(name) if name else "–" for name in reel.revisions],
                "rows": reel.rows,
                "width": reel.width,
                "frames": reel.frames,
            }
            for reel in reels
        ],
    }
    return fill_page(
        _HERE,
        "film.html",
        "film.css",
        title=", ".join(dict.fromkeys(reel.title for reel in reels)),
        script=page_file(_HERE, "film.js"),
        data=to_json(data),
    )
