"""Names beside points, put where they cover least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy import ndarray

_SIZE = 6  # of the letters, in typographic points, as every length here
_RADIUS = 6  # of a head's marker
_REACH = (8, 14, 21, 29)  # how far from its point a name may begin
_DIRECTIONS = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)])


def name_points(
    figure: Figure, axes: Axes, points: Float[ndarray, "head 2"], names: Sequence[str]
) -> None:
    """Write a name beside each point: the nearest place that covers no point and no other name.

    Where every place covers something, the one that covers least; a name that is not next to its
    point has a line to it.
    """
    figure.draw_without_rendering()  # only now do points have places on the paper
    places = axes.transData.transform(points) * 72 / figure.dpi
    taken = [_box(place, np.full(2, 2 * _RADIUS)) for place in places]
    for place, point, name in zip(places, points, names, strict=True):
        size = np.array([0.62 * _SIZE * len(name), 1.1 * _SIZE])
        shifts = [
            direction * (reach / np.hypot(*direction) + size / 2 * [1, 0.6])
            for reach in _REACH
            for direction in _DIRECTIONS
        ]
        covered = [_covered(_box(place + shift, size), taken) for shift in shifts]
        best = int(np.argmin(covered))
        taken.append(_box(place + shifts[best], size))
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


def _box(middle: ndarray, size: ndarray) -> Float[ndarray, "corner 2"]:
    return np.stack([middle - size / 2, middle + size / 2])


def _covered(box: ndarray, taken: list[ndarray]) -> float:
    """The area of the others that a box covers."""
    others = np.stack(taken)
    sides = np.minimum(box[1], others[:, 1]) - np.maximum(box[0], others[:, 0])
    return float(sides.clip(0).prod(1).sum())
