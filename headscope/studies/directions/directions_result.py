"""The directions by which a head tells a relation's targets from its controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.views.study import Study
from headscope.views.tables import interval_text, plain_table

COLUMNS = ["removed", "share", "mass", "control", "lift", "ci_low", "ci_high", "random_lift"]
SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Directions(Study):
    """The rest of a head's lift without its first directions, on held-out documents."""

    main_table: ClassVar[str] = "removals"

    name: str
    relation: str
    removals: pd.DataFrame
    """A row per number of pairs that are `removed`: the `share` of the contrast that they hold,
    `mass`, `control` and `lift` without them with its 95 % interval over blocks, and `random_lift`,
    the lift without as many random directions."""
    dimensions: int
    """How many of the first pairs hold 90 % of the contrast."""

    def figure(self) -> Figure:
        """The lift by how many directions are removed, and without as many random ones."""
        rows = self.removals
        figure = Figure(figsize=(4.8, 3.2), layout="constrained")
        axes = figure.subplots()
        axes.fill_between(
            rows["removed"], rows["ci_low"], rows["ci_high"], color="#0072b2", alpha=0.2
        )
        axes.plot(rows["removed"], rows["lift"], "o-", color="#0072b2", ms=4, label="these removed")
        axes.plot(
            rows["removed"], rows["random_lift"], "s--", color="0.5", ms=4, label="random ones"
        )
        axes.axvline(self.dimensions, color="0.7", lw=0.8)
        axes.set_xscale("symlog", base=2, linthresh=1)
        axes.set_xlabel("directions removed (the line: they hold 90 %)")
        axes.set_ylabel("lift on held-out documents")
        axes.set_title(f"{self.name}  {self.relation}".replace("$", r"\$"), fontsize=9)
        axes.legend(fontsize=7)
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope directions of {self.name} for {self.relation}: {self.dimensions} hold "
            f"{SHARE:.0%}>"
        )


def directions_lines(result: Directions) -> RenderableType:
    """Table of what the first directions hold, and what is left without them."""
    numbers = ("removed", "they hold", "mass", "control", "lift", "95 %", "random removed")
    rendered = plain_table(*numbers, right=numbers)
    for row in result.removals.itertuples():
        rendered.add_row(
            str(row.removed),
            f"{row.share:.0%}",
            f"{row.mass:.3f}",
            f"{row.control:.3f}",
            f"{row.lift:+.3f}",
            interval_text(row.ci_low, row.ci_high, "+.3f"),
            f"{row.random_lift:+.3f}",
        )
    title = (
        f"{result.name}, {result.relation}: {result.dimensions} pairs of query and key "
        "directions hold 90 % of the contrast between targets and controls"
    )
    return Group(Text(title, style="bold"), rendered, Text(_conclusion(result), style="bold"))


def _conclusion(result: Directions) -> str:
    """Says whether the lift goes with the directions that hold most of the contrast."""
    rows = result.removals.set_index("removed")
    before, after = rows.loc[0], rows.loc[result.dimensions]
    remainder = f"without them the lift goes from {before['lift']:+.3f} to {after['lift']:+.3f}"
    other = f"without as many random ones to {after['random_lift']:+.3f}"
    if after["random_lift"] > after["ci_high"]:
        return f"{remainder}, {other}: the head finds its targets by these directions"
    if after["random_lift"] < after["ci_low"]:
        return (
            f"{remainder}, {other}: random directions matter more, so that these do not carry the "
            "relation"
        )
    return f"{remainder}, {other}: these directions matter no more than random ones"
