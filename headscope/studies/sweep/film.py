"""The atlas along the revisions of a sweep as one page with a slider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment

from headscope.corpus.visible import visible
from headscope.errors import RunError
from headscope.evidence.result import Result, layers_of
from headscope.heads import head_name
from headscope.runs.named import the_run
from headscope.studies.sweep.cells import COMPLETE, Cell
from headscope.studies.sweep.counts import in_order
from headscope.views.colours import (
    LABELS,
    is_resting,
    legend_groups,
    letter,
    marks,
    type_class,
    type_style,
)
from headscope.views.report.data import to_json


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
    """Of each revision, head by head through the layers: `marks`, `lifts` and `tags`."""


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
            f"none of the {len(cells)} runs of this sweep is complete; run headscope sweep again"
        )
    groups = groupby(complete, key=lambda cell: (cell.model, cell.corpus))
    return page([_reel(folder, list(own)) for _, own in groups])


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
        own = layers_of(run), int(run.heads["head"].max()) + 1
        if own != shape:
            raise RunError(
                f"{title}: {revision or 'a revision'} has {len(own[0])} × {own[1]} heads and "
                f"{listed[0][0] or 'the first'} {len(shape[0])} × {shape[1]}; a film has one shape"
            )
    return Reel(
        title,
        tuple(revision for revision, _ in listed),
        tuple(first.stacks.row(layer) for layer in shape[0]),
        shape[1],
        tuple(_frame(run) for _, run in listed),
    )


def _frame(run: Result) -> dict[str, list[Any]]:
    heads = run.heads.assign(mark=marks(run)).sort_values(["layer", "head"])
    names = [head_name(row.layer, row.head, run.stacks) for row in heads.itertuples()]
    return {
        "names": names,
        "marks": [str(mark) for mark in heads["mark"]],
        "lifts": [None if lift != lift else round(float(lift), 2) for lift in heads["lift"]],
        "tags": [str(tags).replace(";", ", ") for tags in heads["tags"]],
    }


def page(reels: Sequence[Reel]) -> str:
    """The page of some reels."""
    drawn = {mark for each in reels for frame in each.frames for mark in frame["marks"]}
    shown = [name for own in legend_groups(drawn).values() for name in own]
    data = {
        "types": [
            {
                "name": name,
                "label": LABELS.get(name, name),
                "letter": letter(name),
                "look": f"type-{type_class(name)}{' resting' if is_resting(name) else ''}",
                "rests": is_resting(name),
            }
            for name in shown
        ],
        "reels": [
            {
                "title": visible(each.title),
                "revisions": [visible(name) if name else "–" for name in each.revisions],
                "rows": each.rows,
                "width": each.width,
                "frames": each.frames,
            }
            for each in reels
        ],
    }
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["visible"] = visible
    return environment.from_string(_file("headscope.studies.sweep", "film.html")).render(
        title=", ".join(dict.fromkeys(each.title for each in reels)),
        style=type_style()
        + "\n"
        + _file("headscope.views.report", "report.css")
        + _file("headscope.studies.sweep", "film.css"),
        script=_file("headscope.studies.sweep", "film.js"),
        data=to_json(data),
    )


@cache
def _file(package: str, name: str) -> str:
    return (files(package) / name).read_text(encoding="utf-8")
