"""The result of a calibration: how often tags are right, on models whose heads are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.views.colours import colour
from headscope.views.study import Study
from headscope.views.tables import plain_table


@dataclass(frozen=True, eq=False)
class Calibration(Study):
    """Tags of planted heads, and of heads that learned nothing; `table` is `planted`."""

    main_table: ClassVar[str] = "planted"

    planted: pd.DataFrame
    """A row per layout × noise × head; see `headscope.studies.validation.calibrate`."""
    drawn: pd.DataFrame | None = None
    """A row per random initialisation of the model that was named; None if none was."""

    @property
    def by_type(self) -> pd.DataFrame:
        """By type and noise: heads `planted`, those `found`, and `false_tags`."""
        counted = self.planted.assign(
            planted=self.planted["relation"] != "",
            false_tags=self.planted["false"].str.split(";").map(lambda tags: sum(map(bool, tags))),
        )
        return counted.groupby(["type", "noise"], as_index=False).agg(
            planted=("planted", "sum"), found=("found", "sum"), false_tags=("false_tags", "sum")
        )

    def figure(self) -> Figure:
        """The share of planted heads that were found, by noise, a line per type."""
        counts = self.by_type
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

    def __repr__(self) -> str:
        counts = self.by_type
        return (
            f"<headscope calibration: {counts['found'].sum()} of {counts['planted'].sum()} planted "
            f"heads found, {counts['false_tags'].sum()} false tags>"
        )


def planted_table(counts: pd.DataFrame) -> RenderableType:
    """A row per type, a column per level of noise: found of planted, and false tags."""
    noises = sorted(counts["noise"].unique())
    table = plain_table("type", *(f"noise {noise:g}" for noise in noises))
    for name, rows in counts.groupby("type"):
        cells = []
        for row in rows.sort_values("noise").itertuples():
            recovered = f"{row.found} of {row.planted}" if row.planted else "–"
            cells.append(f"{recovered}, {row.false_tags} false")
        table.add_row(str(name), *cells)
    title = Text("Planted heads found, and tags that are not true, by noise on every weight:")
    return Group(title, table, Text(_conclusion(counts), style="bold"))


def _conclusion(counts: pd.DataFrame) -> str:
    """The share found without noise and with the most, and how many tags are untrue."""
    parts = []
    for noise in (counts["noise"].min(), counts["noise"].max()):
        at_noise = counts[counts["noise"] == noise]
        parts.append(
            f"{at_noise['found'].sum()} of {at_noise['planted'].sum()} with noise {noise:g}"
        )
    false = int(counts["false_tags"].sum())
    untrue = "no tag is untrue" if not false else f"{false} tags are untrue"
    return f"found: {' and '.join(dict.fromkeys(parts))}; {untrue}"


def random_table(random_models: pd.DataFrame) -> RenderableType:
    """A row per random initialisation: heads, how many got a tag, and which."""
    table = plain_table("seed", "heads", "tagged", "tags")
    for row in random_models.itertuples():
        table.add_row(str(row.seed), str(row.heads), str(row.tagged), row.tags.replace(";", ", "))
    share = random_models["tagged"].sum() / random_models["heads"].sum()
    table.add_row(
        "all", str(random_models["heads"].sum()), str(random_models["tagged"].sum()), f"{share:.2%}"
    )
    by_chance = int((random_models["tagged"] > 0).sum())
    summary = f"weights that learned nothing got a tag in {by_chance} of {len(random_models)} draws"
    return Group(table, Text(summary, style="bold"))
