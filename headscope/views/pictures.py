"""A run's pictures by their names: what each may be asked, and at which width it is drawn."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from matplotlib.figure import Figure

from headscope.errors import ChoiceError, HeadscopeError
from headscope.evidence.result import Result
from headscope.views.arcs import arcs_figure
from headscope.views.figures import FIGURES
from headscope.views.paper import fitted
from headscope.views.scatter import X, Y, scatter_figure

SCATTER, ARCS = "scatter", "arcs"
KINDS = (*FIGURES, SCATTER, ARCS)
_OWN = {"head": ARCS, "x": SCATTER, "y": SCATTER}
"""What only one picture may be asked."""


@dataclass(frozen=True)
class Asked:
    """What a picture is asked beside its name; None where it is not said."""

    head: str | None = None
    x: str | None = None
    y: str | None = None


def run_figure(run: Result, kind: str, asked: Asked, *, width: float | None = None) -> Figure:
    """One of `KINDS` of a run.

    Args:
        run: the run.
        kind: the picture's name.
        asked: what it is asked.
        width: in inches; its own if None.

    Raises:
        ChoiceError: no such picture, or no such column.
        HeadscopeError: what was asked is of another picture, or `arcs` without a head.
    """
    if kind not in KINDS:
        raise ChoiceError("picture", kind, KINDS)
    for name, value in asdict(asked).items():
        if value is not None and _OWN[name] != kind:
            raise HeadscopeError(f"{name} is for {_OWN[name]}, not for {kind}")
    if kind == ARCS:
        if asked.head is None:
            raise HeadscopeError("arcs are of one head; name it, such as L5H1")
        return arcs_figure(run, asked.head, width=width)
    if kind == SCATTER:
        return fitted(scatter_figure(run, x=asked.x or X, y=asked.y or Y), width)
    return fitted(FIGURES[kind](run), width)
