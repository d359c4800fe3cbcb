"""The atlas along the revisions of a sweep as one page with a slider."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.printing import visible
from headscope.runs.resolve import the_run
from headscope.statistics.result import Result, layers_of
from headscope.studies.sweep.counts import complete_cells
from headscope.studies.sweep.sweep_cells import Cell
from headscope.views.colours import is_resting, legend_groups, letter
from headscope.views.html_page import fill_page, page_file, style_class
from headscope.views.report.data import to_json

_HERE = "headscope.studies.sweep"


def film_html(folder: Path, cells: Sequence[Cell]) -> str:
    """A sweep's atlases as one HTML page that asks no network.

    Args:
        folder: the sweep's folder.
        cells: its cells; what is not complete is left out.

    Raises:
        RunError: no cell is complete, a run cannot be read, or revisions have different shapes.
    """
    groups = groupby(complete_cells(cells), key=lambda cell: (cell.model, cell.corpus))
    reels = [_reel(folder, list(group)) for _, group in groups]
    present = {name for reel in reels for frame in reel["frames"] for name in frame["types"]}
    types = [
        {
            "name": name,
            "letter": letter(name),
            "look": style_class(name),
            "rests": is_resting(name),
        }
        for group in legend_groups(present).values()
        for name in group
    ]
    visible_reels = [{**reel, "title": visible(reel["title"])} for reel in reels]
    return fill_page(
        _HERE,
        "film.html",
        "film.css",
        title=", ".join(dict.fromkeys(reel["title"] for reel in reels)),
        script=page_file(_HERE, "film.js"),
        data=to_json({"types": types, "reels": visible_reels}),
    )


def _reel(folder: Path, cells: Sequence[Cell]) -> dict[str, Any]:
    """The revisions of one model on one text, each with its heads, in the order of their steps.

    Raises:
        RunError: they have different shapes.
    """
    names = [Path(cells[0].model.rstrip("/")).name or cells[0].model]
    names += [Path(path).stem for path in cells[0].corpus]
    title = " on ".join(names[:2]) + "".join(f" + {name}" for name in names[2:])
    runs = [(cell.revision or "", the_run(folder / cell.folder)) for cell in cells]
    first = runs[0][1]
    shape = layers_of(first), int(first.heads["head"].max()) + 1
    for revision, run in runs:
        size = layers_of(run), int(run.heads["head"].max()) + 1
        if size != shape:
            raise RunError(
                f"{title}: {revision or 'a revision'} has {len(size[0])} × {size[1]} heads "
                f"and {runs[0][0] or 'the first'} {len(shape[0])} × {shape[1]}; "
                "a film has one shape"
            )
    return {
        "title": title,
        "revisions": [visible(revision) if revision else "–" for revision, _ in runs],
        "rows": [first.head_names.row(layer) for layer in shape[0]],
        "width": shape[1],
        "frames": [film_frame(run) for _, run in runs],
    }


def film_frame(run: Result) -> dict[str, list[Any]]:
    """Head by head through the layers of one revision."""
    heads = run.heads.sort_values(["layer", "head"])
    return {
        "names": [head_name(row.layer, row.head, run.head_names) for row in heads.itertuples()],
        "types": [str(name) for name in heads["primary"]],
        "lifts": [None if lift != lift else round(float(lift), 2) for lift in heads["lift"]],
        "tags": [str(tags).replace(";", ", ") for tags in heads["tags"]],
    }
