"""Likeness of the heads of a model."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.views.study import Study, values_to_json
from headscope.views.tables import interval_text, plain_table, rows_table

LEAST_P = 0.05
MAX_NAMES = 8
"""Heads of a cluster that are named."""


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


def redundancy_lines(redundancy: Redundancy) -> RenderableType:
    """Heads from the most redundant on, clusters, groups of pairs, tests, and notes.

    The heads come first: where they are many, what is said of all of them ends on the screen.
    """
    title = (
        f"{redundancy.model}: {len(redundancy.heads)} heads, {redundancy.queries} queries "
        f"of {redundancy.windows} windows; distance: Jensen-Shannon divergence in bits, from 0 "
        "(same pattern) to 1 (no key in common)"
    )
    parts: list[RenderableType] = [Text(title, style="bold")]
    for table in (_heads(redundancy), _clusters(redundancy), _groups(redundancy)):
        parts += [Text(), table]
    if len(redundancy.tests):
        parts += [Text(), _tests(redundancy)]
    if conclusion := _conclusion(redundancy):
        parts += [Text(), Text(conclusion, style="bold")]
    parts += [Text(f"note: {note}", style="yellow") for note in redundancy.notes]
    return Group(*parts)


def _heads(redundancy: Redundancy) -> Table:
    return rows_table(
        redundancy.heads.sort_values("distance", kind="stable"),
        {
            "head": lambda row: head_name(row.layer, row.head),
            "distance": lambda row: f"{row.distance:.3f}",
            "cluster": lambda row: str(row.cluster),
            "nearest": lambda row: row.nearest,
            "primary": lambda row: row.primary,
        },
        right=("distance", "cluster"),
    )


def _clusters(redundancy: Redundancy) -> RenderableType:
    table = plain_table("cluster", "heads", "primary", "which", unwrapped=("cluster",))
    for number, cluster in redundancy.heads.groupby("cluster", sort=True):
        types = ", ".join(f"{n} {name}" for name, n in cluster["primary"].value_counts().items())
        names = [head_name(row.layer, row.head) for row in cluster.itertuples()]
        remainder = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        table.add_row(
            str(number), str(len(cluster)), types, ", ".join(names[:MAX_NAMES]) + remainder
        )
    return Group(table, Text(_clear(redundancy.silhouette), style="dim"))


def _clear(silhouette: float) -> str:
    if isnan(silhouette):
        return "one cluster: there is nothing to tell apart"
    clarity = "clear" if silhouette > 0.5 else "weak" if silhouette >= 0.25 else "hardly any"
    return f"silhouette {silhouette:.2f}: {clarity} clusters"


def _groups(redundancy: Redundancy) -> Table:
    columns = {
        "pairs of heads": lambda row: row.group,
        "pairs": lambda row: f"{row.pairs:,}",
        "mean distance": lambda row: f"{row.mean:.3f}",
        "95 %": lambda row: interval_text(row.ci_low, row.ci_high, ".3f", "–"),
    }
    right = ("pairs", "mean distance")
    return rows_table(redundancy.groups, columns, right=right, unwrapped=("pairs of heads",))


def _tests(redundancy: Redundancy) -> Table:
    columns = {
        "test": lambda row: row.test,
        "difference": lambda row: f"{row.difference:.3f}",
        "95 %": lambda row: interval_text(row.ci_low, row.ci_high, ".3f", "–"),
        "p": lambda row: f"{row.p_value:.3f}",
        "labels shuffled over": lambda row: row.shuffled,
    }
    right = ("difference", "p")
    return rows_table(redundancy.tests, columns, right=right, unwrapped=("test",))


def _conclusion(redundancy: Redundancy) -> str:
    """Conclusion of each test, a line each; nothing where no test could be made."""
    lines = []
    for row in redundancy.tests.itertuples():
        first, _, baseline = row.test.partition(" − ")
        verb = "are" if row.p_value < LEAST_P else "are not shown to be"
        lines.append(
            f"patterns of heads of the {first} {verb} more alike than those of the {baseline} "
            f"(permutation test, labels shuffled over {row.shuffled}: p {row.p_value:.3f})"
        )
    return "\n".join(lines)
