"""The map of a model's heads: near each other where they look at the same keys; and names beside
points, put where they cover least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy import ndarray
from scipy.spatial import ConvexHull, QhullError

from headscope.heads import head_name
from headscope.statistics.tags import UNCLASSIFIED
from headscope.views.colours import colour, ink, letter, types_in_order

if TYPE_CHECKING:
    from headscope.studies.redundancy.redundancy_result import Redundancy

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
