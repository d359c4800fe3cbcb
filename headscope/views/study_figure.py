"""Figures of studies, drawn from a declaration and the columns of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from headscope.heads import head_name
from headscope.packages import optional_package
from headscope.relations import head_types
from headscope.statistics.tags import NO_TYPE
from headscope.views.colours import letter, types_in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MOST_BARS, MOST_TICKS = 40, 16
LEGEND_CHARACTERS = 60
"""Characters of a line of the legend of letters, as wide as the axes."""


@dataclass(frozen=True, kw_only=True)
class Plot(ABC):
    """Declaration of a figure: the columns that it shows."""

    kind: ClassVar[str]
    """Kind of the figure, for the reference."""
    panels: tuple[str, ...] = ()
    """Columns whose values have a panel each."""

    def figure(self, title: str, table: pd.DataFrame) -> Figure:
        """Draw a table under the part of the title before the first colon.

        Raises:
            HeadscopeError: matplotlib is not installed.
        """
        optional_package("a figure", "matplotlib")
        from matplotlib.figure import Figure

        rows_of_panel = [(title.split(": ")[0], table)]
        if self.panels:
            rows_of_panel = []
            for values, rows in table.groupby(list(self.panels), sort=False):
                name = " ".join(str(value) for value in values)
                rows_of_panel.append((name, rows))
        height = self.height(table) * len(rows_of_panel)
        figure = Figure(figsize=(6.0, height), layout="constrained")
        subplots = figure.subplots(len(rows_of_panel), squeeze=False)[:, 0]
        for axes, (name, rows) in zip(subplots, rows_of_panel, strict=True):
            axes.set_title(_literal(name), fontsize=9)
            axes.tick_params(labelsize=7)
            self.draw(axes, rows)
        return figure

    def height(self, table: pd.DataFrame) -> float:
        """Inches of a panel."""
        return 3.6

    @abstractmethod
    def draw(self, axes: Axes, table: pd.DataFrame) -> None:
        """Draw the rows of one panel."""


@dataclass(frozen=True, kw_only=True)
class Lines(Plot):
    """Lines of means, with the range of rows that have the same place."""

    kind = "line"
    x: str
    y: str
    by: str
    """Column whose values have a line each."""
    band: tuple[str, str] = ("", "")
    """Columns of the lowest and highest value at each place. Default: those of the rows there."""
    is_logarithmic: bool = False
    """True for a logarithmic scale of the values."""

    def draw(self, axes: Axes, table: pd.DataFrame) -> None:
        """Draw the rows of one panel; text has places in the order of the rows."""
        # the mean at each place as a line, and the spread of the rows there as a band
        places = table[self.x].unique()
        low, high = (column or self.y for column in self.band)
        numbers = table.astype({self.y: float})
        for name, rows in numbers.groupby(self.by, sort=False):
            at_place = rows.groupby(self.x)
            mean = at_place[self.y].mean().reindex(places)
            lowest = at_place[low].min().reindex(places)
            highest = at_place[high].max().reindex(places)
            (line,) = axes.plot(
                places,
                mean,
                "o-",
                ms=3,
                lw=1.2,
                color=_colour(name),
                label=name,
            )
            axes.fill_between(
                places,
                lowest,
                highest,
                color=line.get_color(),
                alpha=0.2,
                lw=0,
            )
        if self.is_logarithmic:
            axes.set_yscale("log")
        _finish(axes, self.x, self.y, table)


@dataclass(frozen=True, kw_only=True)
class Points(Plot):
    """Points, with error bars if the table has intervals."""

    kind = "scatter"
    x: str
    y: str
    by: str
    """Column whose values have a colour each."""
    is_map: bool = False
    """True if distances between points have a meaning, so that both axes have one scale."""

    def draw(self, axes: Axes, table: pd.DataFrame) -> None:
        """Draw the rows of one panel."""
        for name, rows in table.groupby(self.by, sort=False):
            errors = _error_bars(rows, self.y) if "ci_low" in rows else None
            axes.errorbar(
                rows[self.x],
                rows[self.y],
                errors,
                fmt="o",
                ms=4,
                color=_colour(name),
                label=name,
            )
        if self.is_map:
            axes.set_aspect("equal", adjustable="datalim")
        _finish(axes, self.x, self.y, table)


@dataclass(frozen=True, kw_only=True)
class Bars(Plot):
    """Bars of the rows with the largest first value, a head in each."""

    kind = "bar"
    values: tuple[str, ...]
    """Columns with a bar each."""
    labels: tuple[str, ...]
    """Columns that name a row, after its head."""

    def height(self, table: pd.DataFrame) -> float:
        """Inches of a panel."""
        return 1.2 + 0.25 * min(len(table), MOST_BARS)

    def draw(self, axes: Axes, table: pd.DataFrame) -> None:
        """Draw the rows of one panel."""
        sizes = table[self.values[0]].abs()
        largest = sizes.nlargest(MOST_BARS).index
        rows = table.loc[largest[::-1]]  # bars are drawn from below
        height = 0.8 / len(self.values)
        for number, column in enumerate(self.values):
            positions = [row - number * height for row in range(len(rows))]
            has_errors = number == 0 and "ci_low" in rows
            errors = _error_bars(rows, column) if has_errors else None
            axes.barh(positions, rows[column].astype(float), height, xerr=errors, label=column)
        names = [self._name(row) for row in rows.to_dict("records")]
        axes.set_yticks(range(len(rows)), names)
        axes.legend(fontsize=7)

    def _name(self, row: dict[Any, Any]) -> str:
        """The name of a row: its head, then its labels."""
        words = [head_name(int(row["layer"]), int(row["head"]))]
        for column in self.labels:
            if pd.notna(row[column]):
                words.append(str(row[column]).strip())
        return _literal(" ".join(words))


@dataclass(frozen=True, kw_only=True)
class HeatMap(Plot):
    """Heat map with 0 in white and missing values in grey."""

    kind = "heat map"
    value: str
    x: str = "head"
    y: str = "layer"
    mark: str = ""
    """Column with True for cells that have a dot."""
    letters: str = ""
    """Column of types joined by `;`; a cell has the letter of the first one."""
    label: str = ""
    """Label of the colours. Default: the column."""

    def height(self, table: pd.DataFrame) -> float:
        """Inches of a panel."""
        return 1.2 + 0.22 * min(int(table[self.y].nunique()), MOST_BARS)

    def draw(self, axes: Axes, table: pd.DataFrame) -> None:
        """Draw the rows of one panel."""
        from matplotlib import colormaps

        wide = table.pivot(index=self.y, columns=self.x, values=self.value)
        wide = wide.astype(float)
        largest = float(wide.abs().max(axis=None))
        # white is 0 in every figure, so that both signs have the same scale
        limit = largest if largest > 0 else 1.0
        colours = colormaps["RdBu_r"].with_extremes(bad="#d9d9d9")
        image = axes.imshow(wide, cmap=colours, vmin=-limit, vmax=limit, aspect="auto")
        if self.mark:
            # a dot in each cell that is marked
            size = 3 if len(wide) <= MOST_BARS else 1
            marked = table[table[self.mark].eq(True)]
            for row in marked.to_dict("records"):
                column = wide.columns.get_loc(row[self.x])
                line = wide.index.get_loc(row[self.y])
                axes.plot(column, line, "o", ms=size, color=_ink(image, wide.iat[line, column]))
        lines = [self.x]
        if self.letters and len(wide) <= MOST_BARS:
            types = self._write_letters(axes, table, wide, image)
            # a letter and its type are not broken apart
            meanings = [f"{letter(name)}\N{NO-BREAK SPACE}{name}" for name in types_in_order(types)]
            lines += wrap(", ".join(meanings), LEGEND_CHARACTERS)
        _tick(axes.yaxis, wide.index)
        _tick(axes.xaxis, wide.columns)
        if len(wide.columns) > MOST_TICKS:
            axes.tick_params(axis="x", rotation=90)
        notes = [self.label or self.value]
        if self.mark:
            notes.append(f"dots: {self.mark}")
        if wide.isna().any(axis=None):
            notes.append("grey: not measured")
        bar = axes.figure.colorbar(image, ax=axes, label="; ".join(notes))
        # shares have no other sign
        if not (wide < 0).any(axis=None):
            bar.ax.set_ylim(0, limit)
        axes.set_xlabel("\n".join(lines))
        axes.set_ylabel(self.y)

    def _write_letters(
        self, axes: Axes, table: pd.DataFrame, wide: pd.DataFrame, image: AxesImage
    ) -> set[str]:
        """Write the letter of the first type of each cell, and return the types written."""
        # the legend names the types whose letters are written, and no others
        written = set()
        for row in table.to_dict("records"):
            column = wide.columns.get_loc(row[self.x])
            line = wide.index.get_loc(row[self.y])
            first = str(row[self.letters]).partition(";")[0]
            if not first:
                continue
            written.add(first)
            axes.text(
                column,
                line,
                letter(first),
                ha="center",
                va="center",
                fontsize=6,
                color=_ink(image, wide.iat[line, column]),
            )
        return written


def _ink(image: AxesImage, value: float) -> str:
    """Black or white, whichever has the larger contrast with the colour of a value."""
    ground = image.to_rgba(np.array([value]))[0].tolist()
    contrast_of_white = 1.05 / (luminance(ground) + 0.05)
    contrast_of_black = 21 / contrast_of_white
    return "white" if contrast_of_white > contrast_of_black else "black"


def luminance(colour: Sequence[float]) -> float:
    """Relative luminance of a colour in sRGB, from 0 for black to 1 for white (WCAG 2.2).

    >>> round(luminance((1, 1, 1)), 3), round(luminance((1, 0, 0)), 4)
    (1.0, 0.2126)
    """
    linear = []
    for channel in colour[:3]:
        is_dark = channel <= 0.04045
        linear.append(channel / 12.92 if is_dark else ((channel + 0.055) / 1.055) ** 2.4)
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _tick(axis: Axis, names: pd.Index) -> None:
    """Ticks with the names of some rows or columns."""
    step = ceil(len(names) / MOST_BARS)
    axis.set_ticks(range(0, len(names), step), names[::step])


def _literal(text: str) -> str:
    """Text in which matplotlib reads no formula."""
    return text.replace("$", r"\$")


def _colour(name: object) -> str | None:
    """The colour of a head type, grey for no type; None, which takes the next one, for others."""
    head_type = head_types().get(str(name))
    if head_type:
        return head_type.colour
    return "0.7" if name in NO_TYPE else None


def _error_bars(rows: pd.DataFrame, column: str) -> list[pd.Series]:
    """Lengths of the error bars of a column, down to `ci_low` and up to `ci_high`."""
    down = rows[column] - rows["ci_low"]
    up = rows["ci_high"] - rows[column]
    return [down.clip(lower=0), up.clip(lower=0)]


def _finish(axes: Axes, x: str, y: str, table: pd.DataFrame) -> None:
    """Names of the axes, some of the names of places, and the legend."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if not is_numeric_dtype(table[x]):
        count = table[x].nunique()
        step = ceil(count / MOST_TICKS)
        axes.set_xticks(range(0, count, step))
        axes.tick_params(axis="x", rotation=45)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
