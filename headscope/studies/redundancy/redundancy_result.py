"""Likeness of the heads of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.views.study import Study, values_to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Redundancy(Study):
    """Likeness of the heads of a model; `table` is `heads`.

    Distances are mean Jensen–Shannon divergences in bits, in [0, 1]: 0 for heads that always look
    at the same keys, 1 for heads that never do. Clusters and the map use their square roots, which
    are distances between points (see `redundancy`).
    """

    model: str
    heads: pd.DataFrame
    """A row per head: `layer`, `head`, `primary`, its `cluster` (1 is the largest), its place `x`,
    `y` on the map, the `nearest` head and the `distance` to it in bits."""
    groups: pd.DataFrame
    """Groups of pairs; see `headscope.studies.redundancy.group_tests.GroupTests`."""
    tests: pd.DataFrame
    """Same type and same key/value group against the rest; likewise."""
    distances: Float[ndarray, "head head"]
    """Between all heads, in bits, in the order of `heads`."""
    silhouette: float
    """How clear the clusters are, in [−1, 1]: above 0.5 clear, below 0.25 none to speak of."""
    shown: float
    """The share of all variance that the map shows, in [0, 1]."""
    windows: int
    queries: int
    """Windows of text and queries in all that were compared."""
    notes: tuple[str, ...] = ()

    @property
    def table(self) -> pd.DataFrame:
        """A row per head; groups of pairs are in `groups`, and what they differ by in `tests`."""
        return self.heads

    def json(self) -> str:
        """A JSON object with the tables; a number that is not defined is null."""
        names = ("model", "windows", "queries", "silhouette", "shown", "notes")
        tables = {"heads": self.heads, "groups": self.groups, "tests": self.tests}
        values = {name: getattr(self, name) for name in names}
        return values_to_json({"model": self.model, "unit": "bits", **values}, tables)

    def figure(self) -> Figure:
        """The map as a matplotlib figure; see `headscope.studies.redundancy.map_figure`."""
        from headscope.studies.redundancy.map_figure import map_figure

        return map_figure(self)

    def __repr__(self) -> str:
        return (
            f"<redundancy of {self.model}: {len(self.heads)} heads in "
            f"{self.heads['cluster'].max()} clusters, silhouette {self.silhouette:.2f}>"
        )
