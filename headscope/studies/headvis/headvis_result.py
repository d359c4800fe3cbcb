"""The result of an export for HeadVis: its folder, its content in the terminal, and its scatter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.headvis.row_metrics import METRICS
from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

X, Y = "prev_token_score", "induction_score"
LABELLED = 3
"""Heads that are named at the end of each axis."""


@dataclass(frozen=True, eq=False)
class HeadVis(Study):
    """A folder that the HeadVis frontend reads, with the numbers of its scatter."""

    model: str
    folder: Path
    """The `data` folder."""
    heads: pd.DataFrame
    """A row per head with HeadVis' metrics and headscope's own, as in `scatter_data.json`; what is
    empty is in no file."""
    told: dict[str, str]
    """The words of each metric's tooltip."""
    sequences: int
    tokens: int
    clouds: int
    """Heads with a cloud of their queries, keys, outputs and values."""
    notes: tuple[str, ...] = ()

    def figure(self) -> Figure:
        """Every head by how much it attends to the token before, and to what followed its token."""
        rows = self.heads
        figure = Figure(figsize=(4.6, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.scatter(rows[X], rows[Y], s=14, color="#0072b2", alpha=0.7, linewidths=0)
        ends = {*rows[X].nlargest(LABELLED).index, *rows[Y].nlargest(LABELLED).index}
        for row in sorted(ends):
            point = rows.loc[row, X], rows.loc[row, Y]
            axes.annotate(_name(self, row), point, (3, 3), textcoords="offset points", fontsize=7)
        axes.set_xlabel(X)
        axes.set_ylabel(Y)
        axes.set_title(short_title(self.model), fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope data for HeadVis of {self.model}: {len(self.heads)} heads on "
            f"{self.sequences} sequences, in {str(self.folder)!r}>"
        )


def headvis_lines(export: HeadVis) -> RenderableType:
    """The amount written, and the head that has the most of each of HeadVis' metrics."""
    rows = export.heads
    metrics_table = plain_table("metric", "most", "", "median", "least", "", right=("median",))
    for metric in (name for name in METRICS if name in rows):
        values = rows[metric].dropna()
        ends = values.idxmax(), values.idxmin()
        highest, lowest = ((_name(export, row), f"{values[row]:.4f}") for row in ends)
        metrics_table.add_row(metric, *highest, f"{values.median():.4f}", *lowest)
    return Group(
        Text(
            f"{short_title(export.model)}: {len(rows)} heads on {export.sequences:,} sequences of "
            f"{export.tokens:,} tokens; {len(export.told)} metrics, {export.clouds} clouds",
            style="bold",
        ),
        metrics_table,
        *(Text(f"note: {note}", style="yellow") for note in export.notes),
        Text(
            "Next: HeadVis' page shows it where its built files lie beside this folder, named "
            "data; --heads tagged, or names, writes fewer files."
        ),
    )


def _name(export: HeadVis, row: int) -> str:
    head = export.heads.loc[row]
    return head_name(int(head["layer"]), int(head["head"]))
