"""The directions by which a head tells a relation's targets from its controls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ["removed", "share", "mass", "control", "lift", "ci_low", "ci_high", "random_lift"]
SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Directions(Study):
    """The rest of a head's lift without its first directions, on held-out documents."""

    name: str
    relation: str
    removals: pd.DataFrame
    """A row per number of pairs that are `removed`: the `share` of the contrast that they hold,
    `mass`, `control` and `lift` without them with its 95 % interval over blocks, and `random_lift`,
    the lift without as many random directions."""
    dimensions: int
    """How many of the first pairs hold 90 % of the contrast."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per number of directions removed."""
        return self.removals

    def figure(self) -> Figure:
        """The lift by how many directions are removed, and without as many random ones."""
        from headscope.studies.directions.directions_view import directions_figure

        return directions_figure(self)

    def __repr__(self) -> str:
        return (
            f"<headscope directions of {self.name} for {self.relation}: {self.dimensions} hold "
            f"{SHARE:.0%}>"
        )
