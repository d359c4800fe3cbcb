"""A run's pictures by their names: what each may be asked, and at which width it is drawn."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from matplotlib.figure import Figure

from headscope.errors import ChoiceError, HeadscopeError
from headscope.statistics.result import Result
from headscope.views.arcs import arcs_figure
from headscope.views.figure_style import fitted
from headscope.views.figures import FIGURES
from headscope.views.scatter import X, Y, scatter_figure

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
