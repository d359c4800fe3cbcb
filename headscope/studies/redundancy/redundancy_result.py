"""Likeness of the heads of a model: tables, and a map on which those are near each other that look
at the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy import ndarray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.spatial import ConvexHull, QhullError

from headscope.heads import head_name
from headscope.statistics.tags import UNCLASSIFIED
from headscope.views.colours import colour, ink, letter, types_in_order
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

    def json(self) -> str:
        """A JSON object with the tables; a number that is not defined is null."""
        names = ("model", "windows", "queries", "silhouette", "shown", "notes")
        tables = {"heads": self.heads, "groups": self.groups, "tests": self.tests}
        values = {name: getattr(self, name) for name in names}
        return values_to_json({"model": self.model, "unit": "bits", **values}, tables)

    def figure(self) -> Figure:
        """The map as a matplotlib figure; see `map_figure`."""
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


MOST_NAMES = 64  # names of more heads would cover each other
_SIZE = 6  # of the letters, in typographic points, as every length here
_RADIUS = 6  # of a head's marker
_REACH = (8, 14, 21, 29)  # how far from its point a name may begin
_DIRECTIONS = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)])


def map_figure(redundancy: Redundancy) -> Figure:
    """The map, each head its type's colour and letter, an outline around each cluster of three.

    Up to 64 heads have their names beside them; of more, a head has its layer's number instead of
    a letter.
    """
    with_names = len(redundancy.heads) <= MOST_NAMES
    figure = Figure(figsize=(8.5, 6.5) if with_names else (13, 10), layout="constrained")
    axes = figure.subplots()
    points = redundancy.heads[["x", "y"]].to_numpy()
    for _, cluster in redundancy.heads.groupby("cluster"):
        _outline(axes, points[cluster.index])
    for row in redundancy.heads.itertuples():
        # a later head covers an earlier one with its number, so that no two numbers mix
        height = 3 + row.Index
        marked = letter(row.primary) if with_names else str(row.layer)
        fill: Any = {
            "color": colour(row.primary),
            "markeredgecolor": "grey",
            "markeredgewidth": 0.5,
        }
        axes.plot(row.x, row.y, "o", markersize=11 if with_names else 7, zorder=height, **fill)
        text_style: Any = {
            "ha": "center",
            "va": "center_baseline",
            "clip_on": True,
            "zorder": height,
        }
        size = 7 if with_names else 4.5
        axes.text(row.x, row.y, marked, color=ink(row.primary), fontsize=size, **text_style)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("√bits")
    axes.set_ylabel("√bits")
    axes.set_title(_title(redundancy), fontsize=9)
    types = types_in_order({*redundancy.heads["primary"], UNCLASSIFIED})
    handles = [Patch(facecolor=colour(name), edgecolor="grey", label=name) for name in types]
    axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if with_names:
        names = [head_name(row.layer, row.head) for row in redundancy.heads.itertuples()]
        name_points(figure, axes, points, names)
    return figure


def name_points(
    figure: Figure, axes: Axes, points: Float[ndarray, "head 2"], names: Sequence[str]
) -> None:
    """Write a name beside each point: the nearest place that covers no point and no other name.

    Where every place covers something, the one that covers least; a name that is not next to its
    point has a line to it.
    """
    figure.draw_without_rendering()  # only now do points have places on the paper
    places = axes.transData.transform(points) * 72 / figure.dpi
    occupied = [_box(centre, np.full(2, 2 * _RADIUS)) for centre in places]
    for centre, point, name in zip(places, points, names, strict=True):
        size = np.array([0.62 * _SIZE * len(name), 1.1 * _SIZE])
        shifts = [
            direction * (reach / np.hypot(*direction) + size / 2 * [1, 0.6])
            for reach in _REACH
            for direction in _DIRECTIONS
        ]
        covered = [_covered(_box(centre + shift, size), occupied) for shift in shifts]
        best = int(np.argmin(covered))
        occupied.append(_box(centre + shifts[best], size))
        far = best >= len(_DIRECTIONS)
        axes.annotate(
            name,
            point,
            tuple(shifts[best]),
            textcoords="offset points",
            fontsize=_SIZE,
            ha="center",
            va="center",
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "0.5"} if far else None,
        )


def _outline(axes: Axes, points: Float[ndarray, "head 2"]) -> None:
    """A line around the heads of a cluster; none around fewer than three, or three in a row."""
    if len(points) < 3:
        return
    try:
        corners = points[ConvexHull(points).vertices]
    except QhullError:
        return
    axes.fill(*corners.T, facecolor=(0, 0, 0, 0.06), edgecolor="0.6", linewidth=0.8, zorder=0)


def _title(redundancy: Redundancy) -> str:
    name = redundancy.model.replace("$", r"\$")
    variance = (
        ""
        if np.isnan(redundancy.shown)
        else f"; the plane shows {redundancy.shown:.0%} of the variance"
    )
    numbers = "; numbers are layers" if len(redundancy.heads) > MOST_NAMES else ""
    return f"{name}: heads by where they look{variance}{numbers}"


def _box(middle: ndarray, size: ndarray) -> Float[ndarray, "corner 2"]:
    return np.stack([middle - size / 2, middle + size / 2])


def _covered(box: ndarray, occupied: list[ndarray]) -> float:
    """The area of the others that a box covers."""
    others = np.stack(occupied)
    sides = np.minimum(box[1], others[:, 1]) - np.maximum(box[0], others[:, 0])
    return float(sides.clip(0).prod(1).sum())
