"""A run's pictures by their names: what each may be asked, and at which width it is drawn.

One of them shows every head as a point, any two numbers of `heads.csv` on its axes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd
from matplotlib.figure import Figure

from headscope.errors import ChoiceError, HeadscopeError
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.arcs import arcs_figure
from headscope.views.colours import colour, is_resting, legend_groups
from headscope.views.figure_style import fitted
from headscope.views.figures import FIGURES, figure_title, type_legend

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


SCATTER, ARCS = "scatter", "arcs"
KINDS = (*FIGURES, SCATTER, ARCS)
_KIND_OF_OPTION = {"head": ARCS, "x": SCATTER, "y": SCATTER}
"""What only one picture may be asked."""


@dataclass(frozen=True)
class PictureOptions:
    """Options of a picture beside its name; None where one is not given."""

    head: str | None = None
    x: str | None = None
    y: str | None = None


def run_figure(
    run: Result, kind: str, options: PictureOptions, *, width: float | None = None
) -> Figure:
    """One of `KINDS` of a run.

    Args:
        run: the run.
        kind: the picture's name.
        options: what it is asked.
        width: in inches; its own if None.

    Raises:
        ChoiceError: no such picture, or no such column.
        HeadscopeError: what was asked is of another picture, or `arcs` without a head.
    """
    if kind not in KINDS:
        raise ChoiceError("picture", kind, KINDS)
    for name, value in asdict(options).items():
        if value is not None and _KIND_OF_OPTION[name] != kind:
            raise HeadscopeError(f"{name} is for {_KIND_OF_OPTION[name]}, not for {kind}")
    if kind == ARCS:
        if options.head is None:
            raise HeadscopeError("arcs are of one head; name it, such as L5H1")
        return arcs_figure(run, options.head, width=width)
    if kind == SCATTER:
        return fitted(scatter_figure(run, x=options.x or X, y=options.y or Y), width)
    return fitted(FIGURES[kind](run), width)
