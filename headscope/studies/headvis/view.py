"""How an export for HeadVis is shown: what it holds in the terminal, its scatter as a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.headvis.sums import METRICS
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

if TYPE_CHECKING:
    from headscope.studies.headvis.result import HeadVis

X, Y = "previous_token_score", "induction_score"
NAMED = 3
"""Heads that are named at the end of each axis."""


def headvis_lines(found: HeadVis) -> RenderableType:
    """How much was written, and which head has the most of each of HeadVis' metrics."""
    rows = found.heads
    shown = plain_table("metric", "most", "", "median", "least", "", right=("median",))
    for metric in (name for name in METRICS if name in rows):
        values = rows[metric].dropna()
        ends = values.idxmax(), values.idxmin()
        most, least = ((_name(found, row), f"{values[row]:.4f}") for row in ends)
        shown.add_row(metric, *most, f"{values.median():.4f}", *least)
    return Group(
        Text(
            f"{short_title(found.model)}: {len(rows)} heads on {found.sequences:,} sequences of "
            f"{found.tokens:,} tokens; {len(found.told)} metrics, {found.clouds} clouds",
            style="bold",
        ),
        shown,
        *(Text(f"note: {note}", style="yellow") for note in found.notes),
        Text("HeadVis' page shows it where its built files lie beside this folder, named data."),
    )


def headvis_figure(found: HeadVis) -> Figure:
    """Every head by how much it attends to the token before, and to what followed its own token."""
    rows = found.heads
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.scatter(rows[X], rows[Y], s=14, color="#0072b2", alpha=0.7, linewidths=0)
    ends = {*rows[X].nlargest(NAMED).index, *rows[Y].nlargest(NAMED).index}
    for row in sorted(ends):
        place = rows.loc[row, X], rows.loc[row, Y]
        axes.annotate(_name(found, row), place, (3, 3), textcoords="offset points", fontsize=7)
    axes.set_xlabel(X)
    axes.set_ylabel(Y)
    axes.set_title(short_title(found.model), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _name(found: HeadVis, row: int) -> str:
    own = found.heads.loc[row]
    return head_name(int(own["layer"]), int(own["head"]))
