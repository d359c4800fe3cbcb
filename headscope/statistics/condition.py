"""A condition of a tag: a test of the numbers of a row, its margin, and its words.

`headscope.statistics.conditions` has the table of conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

Row = Mapping[str, Any]
"""A row of `headscope.statistics.tags.with_thresholds` (evidence with its thresholds), by column.
The numbers of direct effects whose sign is −1 have changed signs."""
Number = Float[ndarray, " row"]
Truth = Bool[ndarray, " row"]


class Numbers:
    """Rows of evidence with thresholds, each column as an array of floats.

    >>> Numbers({"mass": 0.5, "beats": True})["beats"].tolist()
    [1.0]
    """

    def __init__(self, rows: pd.DataFrame | Row) -> None:
        self._rows = rows
        self._columns: dict[str, Number] = {}

    def __getitem__(self, name: str) -> Number:
        if name not in self._columns:
            values = np.asarray(self._rows[name], dtype=float)
            self._columns[name] = np.atleast_1d(values)
        return self._columns[name]

    def has(self, name: str) -> Truth:
        """Rows that have a number there."""
        known: Truth = ~np.isnan(self[name])
        return known

    def margin(self, name: str, ends: str, threshold: Number | float = 0.0) -> Margin:
        """A column above a threshold, with the interval of columns `{ends}_low` and `{ends}_high`.

        >>> Numbers({"lift": 0.5, "ci_low": 0.25, "ci_high": 1.0}).margin("lift", "ci", 0.5)
        Margin(value=array([0.]), low=array([-0.25]), high=array([0.5]))
        """
        return Margin(
            value=self[name] - threshold,
            low=self[f"{ends}_low"] - threshold,
            high=self[f"{ends}_high"] - threshold,
        )


class Margin(NamedTuple):
    """Distance of a condition's number above its threshold in each row, with its 95 % interval."""

    value: Number
    low: Number
    high: Number

    @classmethod
    def within(cls, value: Number, error: Number) -> Margin:
        """The margin of a number whose interval is as wide on either side."""
        return cls(value=value, low=value - error, high=value + error)


@dataclass(frozen=True)
class Condition:
    """One requirement of a tag. `holds` is vectorised over rows; `describe` takes one row."""

    name: str
    holds: Callable[[Numbers], Truth]
    describe: Callable[[Row], str]
    applies: Callable[[Numbers], Truth] | None = None
    """Rows to which the condition applies; all if None."""
    means: str = ""
    """Explanation in a few words, for a reader who sees it the first time."""
    margin: Callable[[Numbers], Margin] | None = None
    """Distance of the number above its threshold; None if that has no interval."""
    tests_low: bool = False
    """True if the lower end of the interval must lie above the threshold."""
    states_interval: bool = False
    """True if `describe` states the interval of the margin."""
    is_open: Callable[[Numbers], Truth] | None = None
    """Rows that the text cannot decide by it: they have no tag, and it rejects none of them."""

    def message(self, row: Row, margins: Margin | None = None, i: int = 0) -> str:
        """Description of a row that fails, with the margin and its interval if there is one.

        Args:
            row: row with thresholds.
            margins: margins of the whole table; those of the row alone if None.
            i: number of the row in that table.

        >>> from headscope.statistics.conditions import CONDITIONS
        >>> row = {"mass": 0.265, "threshold": 0.267, "mass_error": 0.02}
        >>> CONDITIONS[1].message(row)
        'mass 0.265, threshold 0.267, margin -0.002 [-0.022, +0.018]'
        """
        description = self.describe(row)
        if self.margin is None or self.states_interval:
            return description
        if margins is None:
            margins = self.margin(Numbers(row))
        value, low, high = (float(end[i]) for end in margins)
        if isnan(low):
            return description
        return f"{description}, margin {value:+.3f} [{low:+.3f}, {high:+.3f}]"

    def fails(self, numbers: Numbers) -> Truth:
        """Rows to which the condition applies and where it does not hold."""
        failed: Truth = ~self.holds(numbers)
        if self.applies is not None:
            failed = failed & self.applies(numbers)
        return failed
