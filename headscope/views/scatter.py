"""Every head as a point, any two numbers of `heads.csv` on its axes, as a picture."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from headscope.errors import ChoiceError
from headscope.evidence.result import Result
from headscope.views.colours import NO_TYPE, colour, is_resting, legend_groups, marks
from headscope.views.figures import title_of, type_legend

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
    drawn = marks(run)
    groups = legend_groups(drawn.unique())
    for name in [name for own in reversed(groups.values()) for name in own]:  # types on top
        own = run.heads[drawn == name]
        small = name in NO_TYPE or is_resting(name)
        axes.scatter(
            own[x],
            own[y],
            s=8 if small else 16,
            color=_NO_FILL if name in NO_TYPE else colour(name),
            alpha=0.6 if small else 0.9,
            linewidths=0.3,
            edgecolors="white",
        )
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title_of(run), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    type_legend(axes, list(drawn.unique()))
    return figure
