"""Runs side by side as a picture: atlases with changed heads framed, and shares by depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from headscope.statistics.result import layers_of
from headscope.views.colours import colour, types_in_order
from headscope.views.figures import draw_atlas, type_legend

if TYPE_CHECKING:
    from headscope.studies.compare.compare_result import Comparison

_CELL = 0.3  # inches


def compare_figure(comparison: Comparison) -> Figure:
    """A column per run: its atlas, if all runs have the same shape, and its shares by depth.

    Heads that have another primary type or other tags than in the first run are framed: with a
    full line where a tag was gained or lost by a relation whose intervals are apart, else dashed.
    """
    same = comparison.heads is not None
    heads = max(int(run.heads["head"].max()) + 1 for run in comparison.runs)
    layers = max(len(layers_of(run)) for run in comparison.runs)
    width = max(3.0, 0.6 + _CELL * heads if same else 0)
    heights = [0.9 + _CELL * layers, 3.0] if same else [3.2]
    columns = len(comparison.runs)
    figure = Figure(figsize=(1.6 + width * columns, sum(heights)), layout="constrained")
    grid = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    for column, (run, name) in enumerate(zip(comparison.runs, comparison.names, strict=True)):
        top = grid[0, column]
        if same:
            draw_atlas(top, run)
            _frame(top, comparison, name)
        _draw_shares(grid[-1, column], comparison, name)
        top.set_title(name.replace("$", r"\$"), fontsize=9)
    types = {name for run in comparison.runs for name in run.heads["primary"]} if same else set()
    type_legend(grid[0, -1], types_in_order({*comparison.types, *types}))
    return figure


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
