"""Every head as a point, any two numbers of `heads.csv` on its axes, as a picture."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from headscope.errors import ChoiceError
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.colours import colour, is_resting, legend_groups
from headscope.views.figures import figure_title, type_legend

X, Y = "entropy", "lift"
_NO_FILL = "#c2c2cc"  # of heads without a type: the page's, which is paler, is lost on white


def scatter_figure(run: Result, *, x: str = X, y: str = Y) -> Figure:
    """A point per head in its type's colour; heads that rest or have no type are small.

    Args:
        run: the run.
        x: a column of numbers of `heads.csv`, across.
        y: another, up.

    Raises:
        ChoiceError: there is no such column of numbers.
    """
    numbers = [str(c) for c in run.heads.columns if pd.api.types.is_numeric_dtype(run.heads[c])]
    for name in (x, y):
        if name not in numbers:
            raise ChoiceError("column of numbers", name, numbers)
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    primaries = run.heads["primary"]
    groups = legend_groups(primaries.unique())
    for name in [n for members in reversed(groups.values()) for n in members]:  # types on top
        typed_heads = run.heads[primaries == name]
        small = name in NO_TYPE or is_resting(name)
        axes.scatter(
            typed_heads[x],
            typed_heads[y],
            s=8 if small else 16,
            color=_NO_FILL if name in NO_TYPE else colour(name),
            alpha=0.6 if small else 0.9,
            linewidths=0.3,
            edgecolors="white",
        )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(figure_title(run), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    type_legend(axes, list(primaries.unique()))
    return figure
