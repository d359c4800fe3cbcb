"""How a calibration is shown: tables for the terminal, a figure for papers."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.views.colours import colour
from headscope.views.tables import plain_table


def planted_table(counts: pd.DataFrame) -> RenderableType:
    """A row per type, a column per level of noise: found of planted, and false tags."""
    noises = sorted(counts["noise"].unique())
    table = plain_table("type", *(f"noise {noise:g}" for noise in noises))
    for name, rows in counts.groupby("type"):
        cells = []
        for row in rows.sort_values("noise").itertuples():
            found = f"{row.found} of {row.planted}" if row.planted else "–"
            cells.append(f"{found}, {row.false_tags} false")
        table.add_row(str(name), *cells)
    title = Text("Planted heads found, and tags that are not true, by noise on every weight:")
    return Group(title, table)


def random_table(drawn: pd.DataFrame) -> Table:
    """A row per random initialisation: heads, how many got a tag, and which."""
    table = plain_table("seed", "heads", "tagged", "tags")
    for row in drawn.itertuples():
        table.add_row(str(row.seed), str(row.heads), str(row.tagged), row.tags.replace(";", ", "))
    share = drawn["tagged"].sum() / drawn["heads"].sum()
    table.add_row("all", str(drawn["heads"].sum()), str(drawn["tagged"].sum()), f"{share:.2%}")
    return table


def found_figure(counts: pd.DataFrame) -> Figure:
    """The share of planted heads that were found, by noise, a line per type."""
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for name, rows in counts[counts["planted"] > 0].groupby("type"):
        share = rows["found"] / rows["planted"]
        axes.plot(rows["noise"], share, marker="o", ms=4, color=colour(str(name)), label=name)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("noise on every weight (of the planted weights' root mean square)")
    axes.set_ylabel("share of planted heads found")
    axes.legend(fontsize=7)
    axes.set_title(f"tags that are not true: {int(counts['false_tags'].sum())}", fontsize=9)
    return figure
