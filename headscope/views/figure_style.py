"""Pictures at the width of a paper's column: legends below, text that fits and stays text."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend

_POINTS = 72  # of an inch
_CELL, _TALLEST = 0.2, 6.5  # of an atlas, in inches: a cell's height, and all of it
_LETTER = 0.62  # of its font's size, a letter's mean width in DejaVu Sans
_LEAST = 4.0  # points, below which a letter cannot be read in print and is left out
_OUTSIDE = "beside"  # the mark of a legend that stands beside its axes

# Type 42 is TrueType, which publishers take where they refuse matplotlib's Type 3; and what is
# drawn of the same run has the same bytes
_STYLE: dict[Any, Any] = {
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "0",
}
_UNDATED = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}


def picture(figure: Figure, suffix: str) -> bytes:
    """A figure as a file's bytes: `.pdf` and `.svg` with text as text, the font embedded in PDF."""
    buffer, kind = BytesIO(), suffix.lower().removeprefix(".")
    with rc_context(_STYLE), warnings.catch_warnings():
        # of a script that the font has not, a box is drawn; the user need not read so on stderr
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(buffer, format=kind, dpi=200, metadata=_UNDATED.get(kind))
    return buffer.getvalue()


def outside_legend(legend: Legend) -> Legend:
    """Mark a legend that stands beside its axes: in a narrow picture it goes below."""
    legend.set_gid(_OUTSIDE)
    return legend


def fitted(figure: Figure, width: float | None) -> Figure:
    """The same figure at another width in inches; as it is for None.

    Legends that are marked by `beside` go below. Cells of an atlas stay as high as they are wide or
    lower, and their letters get smaller with them; other axes keep the shape of a third.
    """
    if width is None:
        return figure
    small = 6.5 if width < 5 else 7.5
    grid = figure.axes[0].get_gridspec()
    share = width / (grid.ncols if grid else 1)
    heights: dict[int, float] = {}
    for axes in figure.axes:
        subplot = axes.get_subplotspec()
        row = subplot.rowspan.start if subplot else 0
        heights[row] = max(heights.get(row, 0), _restyled(axes, share, small))
    rows = _legend_below(figure, width, small)
    title = _wrapped(figure.get_suptitle(), width, small)
    if title:
        figure.suptitle(title, fontsize=small)
    lines = rows * 1.7 + (1.5 * (title.count("\n") + 1) if title else 0)
    ratios = [heights[row] for row in sorted(heights)]
    if grid and len(ratios) == grid.nrows:
        grid.set_height_ratios(ratios)
    figure.set_size_inches(width, sum(ratios) + lines * small / _POINTS)
    return figure


def _wrapped(text: str, width: float, size: float) -> str:
    """A text in lines of so many inches, about; its own ends of lines go."""
    max_letters = max(8, int(width * _POINTS / (_LETTER * size)))
    return textwrap.fill(" ".join(text.split()), max_letters)


def _restyled(axes: Axes, width: float, small: float) -> float:
    """Make the text of axes fit into a width, and say how high they should be with it."""
    axes.tick_params(labelsize=min(small, 6.5))
    label_count = len(axes.get_yticklabels()) if axes.patches and axes.get_xlim() == (0, 1) else 0
    # beside long names of rows the axes themselves are narrow
    rooms = (0.4, 0.4) if label_count else (0.8, 0.8)
    for text, space in zip((axes.title, axes.xaxis.label), rooms, strict=True):
        text.set_text(_wrapped(text.get_text(), space * width, small))
    extra_height = 1.2 * small / _POINTS * axes.xaxis.label.get_text().count("\n")
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_fontsize(small)
    if axes.images:
        return _atlas(axes, width, small) + extra_height
    for text in axes.texts:
        text.set_fontsize(min(float(text.get_fontsize()), small - 1))
    return max(0.62 * width + 0.5, 0.15 * label_count + 0.5) + extra_height


def _atlas(axes: Axes, width: float, small: float) -> float:
    """Letters, frames and ticks of an atlas at the size of its cells; its height."""
    layers, heads = axes.images[0].get_array().shape[:2]  # type: ignore[union-attr]
    wide = (width - 0.55) / heads
    high = min(_CELL, wide, _TALLEST / layers)
    size = min(7.0, 0.72 * _POINTS * min(wide, high))
    for text in axes.texts:
        text.set_fontsize(size)
        text.set_visible(size >= _LEAST)
    for patch in axes.patches:
        patch.set_linewidth(min(float(patch.get_linewidth()), size / 7))
    for axis, cell in ((axes.xaxis, wide * 0.75), (axes.yaxis, high)):
        every = math.ceil(small * 1.15 / (cell * _POINTS))
        names = [label.get_text() for label in axis.get_ticklabels()]
        places = axis.get_ticklocs()
        axis.set_ticks(places[::every], names[::every])
    return float(high * layers + 0.55)


def _legend_below(figure: Figure, width: float, small: float) -> int:
    """Move legends that stand beside axes below all of them; returns the rows that they take."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is None or legend.get_gid() != _OUTSIDE:
            continue
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            if handle is not None and handle.get_alpha() != 0:  # the title of a group
                handles.setdefault(text.get_text(), handle)
        legend.remove()
    if not handles:
        return 0
    columns = _columns([len(text) for text in handles], width * _POINTS / small)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=columns,
        fontsize=small,
        frameon=False,
        columnspacing=1.0,
        handlelength=1.3,
        handletextpad=0.5,
        labelspacing=0.3,
        borderpad=0.1,
    )
    return math.ceil(len(handles) / columns)


def _columns(lengths: Sequence[int], width: float) -> int:
    """The most columns of texts, filled from top to bottom, that go into so many font sizes."""
    for columns in range(len(lengths), 1, -1):
        rows = math.ceil(len(lengths) / columns)
        column_groups = [lengths[start : start + rows] for start in range(0, len(lengths), rows)]
        if sum(max(texts) * _LETTER + 3.2 for texts in column_groups) <= width:
            return len(column_groups)
    return 1
