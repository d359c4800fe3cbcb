"""A picture of how many tags other thresholds would give."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from headscope.statistics.result import Result
from headscope.statistics.threshold_sensitivity import THRESHOLDS, in_one_line, tags_by_threshold
from headscope.views.colours import colour, is_resting, types_in_order
from headscope.views.figure_style import outside_legend

_TICKS = (0.5, 0.75, 1, 1.5, 2)


def thresholds_figure(run: Result) -> Figure:
    """Heads with a tag of each type, as floors and margins are multiplied by half to twice.

    Heads that rest are left out: they are many, and no function.
    """
    table = tags_by_threshold(run.evidence, run.rules, run.info.get("simple_rules", {}))
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = figure.subplots(1, len(THRESHOLDS), sharey=True)
    for axes, (name, meaning) in zip(panels, THRESHOLDS.items(), strict=True):
        _draw(axes, table[table["threshold"] == name])
        axes.set_xlabel(f"times {meaning}", fontsize=7)
    panels[0].set_ylabel("heads with the tag")
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        legend_position = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        outside_legend(panels[-1].legend(handles, labels, fontsize=7, **legend_position))
    figure.suptitle(in_one_line(table).replace("; ", ";\n"), fontsize=8)
    return figure


def _draw(axes: Axes, table: pd.DataFrame) -> None:
    for name in types_in_order(table["type"]):
        if not is_resting(name):
            curve = table[table["type"] == name].sort_values("factor")
            axes.plot(
                curve["factor"], curve["tags"], "o-", color=colour(name), ms=3, lw=1.2, label=name
            )
    axes.axvline(1, color="grey", lw=0.8, ls=(0, (3, 2)))
    axes.set_xscale("log")
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=7)
    axes.set_ylim(bottom=0)
