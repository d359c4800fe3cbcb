"""Runs side by side: the tables, what is drawn of them, and a page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headscope.errors import RunError
from headscope.heads import head_name, layer_name
from headscope.printing import visible
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE
from headscope.studies.compare.changes import changed
from headscope.views.colours import colour, types_in_order
from headscope.views.figures import draw_atlas, type_legend
from headscope.views.html_page import fill_page
from headscope.views.study import Study, values_to_json

TABLES = ("heads", "relations", "correlation", "depth")
_CELL = 0.3  # inches


@dataclass(frozen=True, eq=False)
class Comparison(Study):
    """Runs side by side. Each is compared with the first where all have the same shape."""

    runs: tuple[Result, ...]
    names: tuple[str, ...]
    """What the tables call the runs, each another name."""
    types: tuple[str, ...]
    """The types of the runs, `unclassified` the last."""
    depth: pd.DataFrame
    """Shares of heads; see `headscope.studies.compare.side_by_side.depth_shares`."""
    heads: pd.DataFrame | None
    """A row per head and run but the first; see `changes.head_changes`. None
    where the shapes differ: head 3 of one model has nothing to do with head 3 of another."""
    relations: pd.DataFrame | None
    """A row per head × relation; see `headscope.studies.compare.changes.relation_changes`."""
    correlation: pd.DataFrame | None
    """A row per relation; see `headscope.studies.compare.changes.correlations`."""
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """`heads` where the runs have the same shape, and else `depth`."""
        return self.depth if self.heads is None else self.heads

    @property
    def changed(self) -> pd.DataFrame:
        """The rows of `heads` that have another primary type or other tags; none of no `heads`."""
        return pd.DataFrame() if self.heads is None else self.heads[changed(self.heads)]

    def choose(self, name: str | None) -> pd.DataFrame:
        """A table by its name; by default `heads`, or `depth` where shapes differ.

        Raises:
            RunError: runs of different shapes have no such table.
        """
        table: pd.DataFrame | None = self.table if name is None else getattr(self, name)
        if table is None:
            raise RunError(f"runs of different shapes have no table {name!r}; they have 'depth'")
        return table

    def json(self) -> str:
        """All tables as one object; one that there is not is null, and so is a missing number."""
        tables = {name: getattr(self, name) for name in TABLES}
        return values_to_json({"runs": self.names, "notes": self.notes}, tables)

    def figure(self) -> Figure:
        """A column per run: its atlas, if all runs have the same shape, and its shares by depth.

        Heads that have another primary type or other tags than in the first run are framed: with a
        full line where a tag was gained or lost by a relation whose intervals are apart, else
        dashed.
        """
        same = self.heads is not None
        heads = max(int(run.heads["head"].max()) + 1 for run in self.runs)
        layers = max(len(layers_of(run)) for run in self.runs)
        width = max(3.0, 0.6 + _CELL * heads if same else 0)
        heights = [0.9 + _CELL * layers, 3.0] if same else [3.2]
        columns = len(self.runs)
        figure = Figure(figsize=(1.6 + width * columns, sum(heights)), layout="constrained")
        grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
        for column, (run, name) in enumerate(zip(self.runs, self.names, strict=True)):
            top = grid[0, column]
            if same:
                draw_atlas(top, run)
                _frame(top, self, name)
            _draw_shares(grid[-1, column], self, name)
            top.set_title(name.replace("$", r"\$"), fontsize=9)
        types = {name for run in self.runs for name in run.heads["primary"]} if same else set()
        type_legend(grid[0, -1], types_in_order({*self.types, *types}))
        return figure

    def html(self) -> str:
        """One self-contained HTML page without scripts, in the report's style."""
        return compare_html(self)

    def __repr__(self) -> str:
        return f"<headscope comparison of {', '.join(self.names)}: {len(self.changed)} changes>"


def _frame(axes: Axes, comparison: Comparison, name: str) -> None:
    changed = comparison.changed
    row_of_layer = {layer: row for row, layer in enumerate(layers_of(comparison.runs[0]))}
    for row in changed[changed["run"] == name].itertuples():
        axes.add_patch(
            Rectangle(
                (row.head - 0.46, row_of_layer[row.layer] - 0.46),
                0.92,
                0.92,
                fill=False,
                edgecolor="black",
                linewidth=1.4,
                linestyle="-" if row.sure else (0, (2, 1.5)),
            )
        )


def _draw_shares(axes: Axes, comparison: Comparison, name: str) -> None:
    """Stacked bars, a bar per stretch of depth with its number of heads above it."""
    rows = comparison.depth[comparison.depth["run"] == name]
    shares = rows.pivot(index="depth_low", columns="type", values="share")
    counts = rows.drop_duplicates("depth_low")
    bar_start, width = counts["depth_low"].to_numpy(), counts["depth_high"] - counts["depth_low"]
    below = np.zeros(len(counts))
    for kind in comparison.types:
        height = shares[kind].to_numpy()
        if np.isnan(height).all():  # this run could not measure the type
            continue
        axes.bar(
            bar_start,
            height,
            width.to_numpy() * 0.92,
            below,
            align="edge",
            color=colour(kind),
            edgecolor="grey",
            linewidth=0.3,
        )
        below += height
    for low, wide, heads in zip(bar_start, width, counts["heads"], strict=True):
        axes.text(low + wide * 0.46, 1.02, str(heads), ha="center", fontsize=7)
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.5, 1])
    axes.tick_params(labelsize=7)
    axes.set_xlabel("relative depth (numbers: heads)")
    axes.set_ylabel("share of heads")


MAX_RELATIONS = 200
"""Rows of the differences by relation, the largest; all are in the CSV."""


def compare_html(comparison: Comparison) -> str:
    """A comparison as one HTML page that asks no network and runs no script."""
    return fill_page(
        "headscope.studies.compare",
        "page.html",
        "page.css",
        title=" and ".join(comparison.names),
        found=comparison,
        atlases=_atlases(comparison),
        changes=_changes(comparison),
        apart=_apart(comparison),
        correlation=[] if comparison.correlation is None else _rows(comparison.correlation),
        depth=_depth(comparison),
        most=MAX_RELATIONS,
    )


def _atlases(comparison: Comparison) -> list[dict[str, Any]]:
    """Each run's layers of cells; none where shapes differ."""
    if comparison.heads is None:
        return []
    changed = {(row["run"], row["layer"], row["head"]): row for row in _rows(comparison.changed)}
    atlases = []
    for run, name in zip(comparison.runs, comparison.names, strict=True):
        layers: list[list[dict[str, Any]]] = []
        for _, layer_heads in run.heads.sort_values(["layer", "head"]).groupby("layer", sort=True):
            layers.append([_cell(row, changed, name) for row in _rows(layer_heads)])
        rows = [layer_name(number) for number in layers_of(run)]
        atlases.append({"name": name, "layers": layers, "rows": rows})
    return atlases


def _cell(row: dict[str, Any], changed: dict[Any, dict[str, Any]], name: str) -> dict[str, Any]:
    change = changed.get((name, row["layer"], row["head"]))
    tags = row["tags"].replace(";", ", ") or row["primary"]
    label = f"{head_name(row['layer'], row['head'])}: {tags}"
    if change:
        label += f"; was {change['primary_first']}"
    strength = 0.0 if row["primary"] in NO_TYPE else min(1.0, max(0.0, row["lift"]))
    return {
        "primary": row["primary"],
        "said": visible(label),
        "strength": f"{strength:.2f}",
        "change": "" if not change else "sure" if change["sure"] else "unsure",
    }


def _changes(comparison: Comparison) -> list[dict[str, Any]]:
    rows = _rows(comparison.changed)
    for row in rows:
        row["name"] = head_name(row["layer"], row["head"])
        sure = row["sure"].split(";")
        for side in ("gained", "lost"):
            tags = [tag for tag in row[side].split(";") if tag]
            row[side] = ", ".join(tag + "*" * (tag in sure) for tag in tags)
    return sorted(rows, key=lambda row: row["sure"] == "")


def _apart(comparison: Comparison) -> list[dict[str, Any]]:
    """The largest differences of lift whose intervals are apart."""
    if comparison.relations is None:
        return []
    apart = comparison.relations[comparison.relations["apart"]]
    order = apart["lift_difference"].abs().sort_values(ascending=False, kind="stable").index
    rows = _rows(apart.loc[order].head(MAX_RELATIONS))
    return [{**row, "name": head_name(row["layer"], row["head"])} for row in rows]


def _depth(comparison: Comparison) -> list[dict[str, Any]]:
    """A row per run and stretch of depth, with the share of each type."""
    rows = []
    stretches = comparison.depth.groupby(["run", "depth_low", "depth_high"], sort=False)
    for (run, low, high), group in stretches:
        shares = dict(zip(group["type"], group["share"], strict=True))
        heads = int(group["heads"].iloc[0])
        rows.append({"run": run, "low": low, "high": high, "heads": heads, "shares": shares})
    return rows


def _rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_dict("records")
    return rows
