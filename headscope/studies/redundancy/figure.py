"""The map of a model's heads: near each other where they look at the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy import ndarray
from scipy.spatial import ConvexHull, QhullError

from headscope.evidence.tags import UNCLASSIFIED
from headscope.heads import head_name
from headscope.studies.redundancy.labels import name_points
from headscope.views.colours import colour, in_order, ink, letter

if TYPE_CHECKING:
    from headscope.studies.redundancy.result import Redundancy

MOST_NAMES = 64  # names of more heads would cover each other


def map_figure(found: Redundancy) -> Figure:
    """The map, each head its type's colour and letter, an outline around each cluster of three.

    Up to 64 heads have their names beside them; of more, a head has its layer's number instead of
    a letter.
    """
    few = len(found.heads) <= MOST_NAMES
    figure = Figure(figsize=(8.5, 6.5) if few else (13, 10), layout="constrained")
    axes = figure.subplots()
    points = found.heads[["x", "y"]].to_numpy()
    for _, own in found.heads.groupby("cluster"):
        _outline(axes, points[own.index])
    for row in found.heads.itertuples():
        # a later head covers an earlier one with its number, so that no two numbers mix
        height = 3 + row.Index
        marked = letter(row.primary) if few else str(row.layer)
        fill: Any = {
            "color": colour(row.primary),
            "markeredgecolor": "grey",
            "markeredgewidth": 0.5,
        }
        axes.plot(row.x, row.y, "o", markersize=11 if few else 7, zorder=height, **fill)
        place: Any = {"ha": "center", "va": "center_baseline", "clip_on": True, "zorder": height}
        size = 7 if few else 4.5
        axes.text(row.x, row.y, marked, color=ink(row.primary), fontsize=size, **place)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("√bits")
    axes.set_ylabel("√bits")
    axes.set_title(_title(found), fontsize=9)
    types = in_order({*found.heads["primary"], UNCLASSIFIED})
    handles = [Patch(facecolor=colour(name), edgecolor="grey", label=name) for name in types]
    axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    if few:
        names = [head_name(row.layer, row.head) for row in found.heads.itertuples()]
        name_points(figure, axes, points, names)
    return figure


def _outline(axes: Axes, points: Float[ndarray, "head 2"]) -> None:
    """A line around the heads of a cluster; none around fewer than three, or three in a row."""
    if len(points) < 3:
        return
    try:
        corners = points[ConvexHull(points).vertices]
    except QhullError:
        return
    axes.fill(*corners.T, facecolor=(0, 0, 0, 0.06), edgecolor="0.6", linewidth=0.8, zorder=0)


def _title(found: Redundancy) -> str:
    name = found.model.replace("$", r"\$")
    shown = "" if np.isnan(found.shown) else f"; the plane shows {found.shown:.0%} of the variance"
    numbers = "; numbers are layers" if len(found.heads) > MOST_NAMES else ""
    return f"{name}: heads by where they look{shown}{numbers}"
