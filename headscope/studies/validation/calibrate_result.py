"""The result of a calibration: how often tags are right, on models whose heads are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Calibration(Study):
    """Tags of planted heads, and of heads that learned nothing; `table` is `planted`."""

    planted: pd.DataFrame
    """A row per layout × noise × head; see `headscope.studies.validation.calibrate`."""
    drawn: pd.DataFrame | None = None
    """A row per random initialisation of the model that was named; None if none was."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per planted head or distractor, with the tags that it earned."""
        return self.planted

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
        from headscope.studies.validation.calibrate_view import found_figure

        return found_figure(self.by_type)

    def __repr__(self) -> str:
        counts = self.by_type
        return (
            f"<headscope calibration: {counts['found'].sum()} of {counts['planted'].sum()} planted "
            f"heads found, {counts['false_tags'].sum()} false tags>"
        )
