"""Conditions of a tag, a row each, which also word the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.measure.tally import MIN_BLOCKS
from headscope.statistics.intervals import Z_95
from headscope.statistics.wording import TIMES_CONTROL, baseline_in_words, strictest_control

MAX_Q = 0.01
MIN_HARD = 10
"""Fewest hard queries that can decide a relation."""
SECOND = 0.5
"""Least share of the threshold that a direct effect must have over the matched control, too."""
STANDS_OUT = 0.5
"""Least lift of an effect in units of the standard deviation of a head's effects over the tokens of
the text. A head with large effects raises whatever it attends to by chance: with random V and O the
lift's mean over a hundred tokens is some tenths of it, and of either sign."""
QUERIES, Q_VALUE, HARD_QUERIES = "queries", "q value", "hard queries"

Row = Mapping[str, Any]
"""A row of `headscope.statistics.tags.with_thresholds`, by column. The numbers of direct effects
whose sign is −1 have changed signs."""
_Number = Float[ndarray, " row"]
_Truth = Bool[ndarray, " row"]


class Numbers:
    """Rows of `headscope.statistics.tags.with_thresholds`, each column as an array of floats.

    >>> Numbers({"mass": 0.5, "beats": True})["beats"].tolist()
    [1.0]
    """

    def __init__(self, rows: pd.DataFrame | Row) -> None:
        self._rows = rows
        self._columns: dict[str, _Number] = {}

    def __getitem__(self, name: str) -> _Number:
        if name not in self._columns:
            self._columns[name] = np.atleast_1d(np.asarray(self._rows[name], dtype=float))
        return self._columns[name]

    def has(self, name: str) -> _Truth:
        """Rows that have a number there."""
        known: _Truth = ~np.isnan(self[name])
        return known


class Margin(NamedTuple):
    """Distance of a condition's number above its threshold in each row, with its 95 % interval."""

    value: _Number
    low: _Number
    high: _Number


def _within(value: _Number, error: _Number) -> Margin:
    return Margin(value, value - error, value + error)


@dataclass(frozen=True)
class Condition:
    """One requirement of a tag. `holds` is vectorised over rows; `describe` takes one row."""

    name: str
    holds: Callable[[Numbers], _Truth]
    describe: Callable[[Row], str]
    applies: Callable[[Numbers], _Truth] | None = None
    """Rows to which the condition applies; all if None."""
    means: str = ""
    """Explanation in a few words, for a reader who sees it the first time."""
    margin: Callable[[Numbers], Margin] | None = None
    """Distance of the number above its threshold; None if that has no interval."""
    states_interval: bool = False
    """True if `describe` states the interval of the margin."""

    def message(self, row: Row, margins: Margin | None = None, i: int = 0) -> str:
        """Description of a row that fails, with the margin and its interval if there is one.

        Args:
            row: row of `with_thresholds`.
            margins: margins of the whole table; those of the row alone if None.
            i: number of the row in that table.

        >>> row = {"mass": 0.265, "threshold": 0.267, "mass_error": 0.02}
        >>> CONDITIONS[1].message(row)
        'mass 0.265, threshold 0.267, margin -0.002 [-0.022, +0.018]'
        """
        if self.margin is None or self.states_interval:
            return self.describe(row)
        margins = self.margin(Numbers(row)) if margins is None else margins
        value, low, high = (float(end[i]) for end in margins)
        margin = "" if isnan(low) else f", margin {value:+.3f} [{low:+.3f}, {high:+.3f}]"
        return self.describe(row) + margin

    def fails(self, numbers: Numbers) -> _Truth:
        """Rows to which the condition applies and where it does not hold."""
        failed = ~self.holds(numbers)
        return failed if self.applies is None else failed & self.applies(numbers)

    def applies_to(self, row: Row) -> bool:
        """True if the condition applies to a row."""
        return self.applies is None or bool(self.applies(Numbers(row))[0])


def _of_attention(numbers: Numbers) -> _Truth:
    return ~numbers.has("sign")


def _has_baseline(numbers: Numbers) -> _Truth:
    both: _Truth = numbers.has("beat_baseline_by") & numbers.has("hard_n")
    return both


def is_open(numbers: Numbers) -> _Truth:
    """Rows whose hard queries cannot distinguish the relation from baselines.

    They are too few, or lie in too few documents, or baselines are right at so many of them that
    even the interval of a head that is always right would include their rate.
    """
    queries = numbers["hard_n"]
    reachable = _bound(numbers) < queries / (queries + Z_95**2)
    enough = (queries >= numbers["fewest_hard"]) & numbers.has("hard_low") & reachable
    open_rows: _Truth = _has_baseline(numbers) & ~enough
    return open_rows


def has_no_interval(numbers: Numbers) -> _Truth:
    """Rows whose queries lie in too few blocks of documents for an interval of the lift."""
    rows: _Truth = (numbers["taggable"] > 0) & ~numbers.has("ci_low")
    return rows


def _bound(numbers: Numbers) -> _Number:
    bound: _Number = numbers["hard_baseline_rate"] + numbers["beat_baseline_by"]
    return bound


def _strictest(numbers: Numbers) -> _Number:
    controls = [numbers["control"], numbers["matched_control"]]
    controls.append(numbers["times_chance"] * numbers["chance"] / TIMES_CONTROL)
    return np.asarray(np.fmax.reduce(controls))


def _control_margin(numbers: Numbers) -> Margin:
    strictest = _strictest(numbers)
    is_control = strictest == numbers["control"]
    error = np.where(is_control, numbers["control_error"], numbers["mass_error"])
    return _within(numbers["mass"] - TIMES_CONTROL * strictest, error)


def _control_in_words(row: Row) -> str:
    control, keys = strictest_control(row)
    return f"mass {row['mass']:.3f}, {TIMES_CONTROL:g} × {control:.3f} on {keys}"


def _interval(low: float, high: float) -> str:
    return "(no interval: too few documents)" if isnan(low) else f"[{low:.3f}, {high:.3f}]"


def _q_value(q: float) -> str:
    return "not known (too few documents)" if isnan(q) else f"{q:.2g}"


def _lift(row: Row, lift: str, ends: str) -> str:
    return f"{row[lift]:+.2f} [{row[f'{ends}_low']:+.2f}, {row[f'{ends}_high']:+.2f}]"


def _hard_in_words(row: Row) -> str:
    if is_open(Numbers(row))[0]:
        return open_in_words(row)
    return (
        f"prefers the target at {row['hard_rate']:.2f} "
        f"{_interval(row['hard_low'], row['hard_high'])} of {row['hard_n']:.0f} queries where "
        f"“{baseline_in_words(row['baseline'])}” is wrong; baselines "
        f"{row['hard_baseline_rate']:.2f} + {row['beat_baseline_by']:.2f}"
    )


def open_in_words(row: Row) -> str:
    """Reason why the text cannot distinguish the relation of a row from baselines."""
    hard = (
        f"{row['hard_n']:.0f} hard queries, where “{baseline_in_words(row['baseline'])}” is wrong"
    )
    if row["hard_n"] < (fewest := row.get("fewest_hard", MIN_HARD)):
        return f"{hard}; needs {fewest:.0f}"
    if isnan(row["hard_low"]):
        return f"{hard}, in too few documents for an interval"
    return f"at {hard}, baselines reach {row['hard_baseline_rate']:.0%}"


def undecided_in_words(row: Row) -> str:
    """Reason why the text cannot decide the relation of a row that is `not identifiable`."""
    if isnan(row["ci_low"]):
        return (
            f"its {row['n']} queries lie in fewer than {MIN_BLOCKS} blocks of documents, too few "
            "for an interval"
        )
    return open_in_words(row)


BESIDE_LIFT = ("matched control tokens", "moved", "stands out")
"""Conditions that the sentence on a direct effect states after its lift."""

CONDITIONS = (
    Condition(
        QUERIES,
        lambda t: (t["taggable"] > 0) & (t["n"] >= t["fewest"]),
        lambda r: (
            f"{r['n']} queries, needs {r['fewest']}"
            if r["taggable"]
            else "this relation is reported and never gives a tag"
        ),
        means="tokens at which attention is measured",
    ),
    Condition(
        "mass",
        lambda t: t["mass"] >= t["threshold"],
        lambda r: f"mass {r['mass']:.3f}, threshold {r['threshold']:g}",
        _of_attention,
        means="mean attention of a query on its targets",
        margin=lambda t: _within(t["mass"] - t["threshold"], t["mass_error"]),
    ),
    Condition(
        Q_VALUE,
        lambda t: (t["q_value"] < MAX_Q) & (t["lift"] > 0),
        lambda r: (
            f"q {_q_value(r['q_value'])}, must be below {MAX_Q:g}; lift {r['lift']:.3f} "
            f"{_interval(r['ci_low'], r['ci_high'])}"
        ),
        means="false discovery rate over all heads and relations, for lift = mass − control > 0",
        margin=lambda t: Margin(t["lift"], t["ci_low"], t["ci_high"]),
        states_interval=True,
    ),
    Condition(
        "control",
        lambda t: t["mass"] >= TIMES_CONTROL * _strictest(t),
        _control_in_words,
        _of_attention,
        means=f"mass against {TIMES_CONTROL:g} times the strictest control",
        margin=_control_margin,
    ),
    Condition(
        HARD_QUERIES,
        lambda t: ~is_open(t) & (t["hard_low"] > _bound(t)),
        _hard_in_words,
        _has_baseline,
        means="share of hard queries at which the target has more attention than every other "
        "candidate, against that of the best mixture of baselines that is right as often "
        "at easy queries",
        margin=lambda t: Margin(*(t[f"hard_{end}"] - _bound(t) for end in ("rate", "low", "high"))),
        states_interval=True,
    ),
    Condition(
        "surrogate",
        lambda t: t["surrogate_margin_low"] > 0,
        lambda r: (
            f"its surrogate is right at {r['surrogate_hit_rate']:.2f}; where it is wrong, the head "
            f"puts {r['surrogate_margin']:+.3f} "
            f"{_interval(r['surrogate_margin_low'], r['surrogate_margin_high'])} more on the "
            "target than on the surrogate's choice"
        ),
        lambda t: t.has("surrogate_margin_low"),
        "a model of the head fitted on parts of speech, word forms, distance, order and repeated "
        "tokens of other documents",
        margin=lambda t: Margin(*(t[f"surrogate_margin{end}"] for end in ("", "_low", "_high"))),
        states_interval=True,
    ),
    Condition(
        "paired relation",
        lambda t: t["paired_mass"] >= t["threshold"],
        lambda r: (
            f"mass {r['paired_mass']:.3f} for {r['paired_relation']}, threshold {r['threshold']:g}"
        ),
        lambda t: t.has("paired_mass"),
        means="a relation that must reach the threshold too: a positional head attends the same "
        "distance back in random tokens and in text",
        margin=lambda t: _within(t["paired_mass"] - t["threshold"], t["paired_error"]),
    ),
    Condition(
        "effect",
        lambda t: t["lift"] >= t["threshold"],
        lambda r: f"lift {r['lift']:+.2f}, threshold {r['threshold']:g}",
        lambda t: t.has("sign"),
        means="direct effect on the logits of the tokens in question − that on control tokens",
        margin=lambda t: Margin(
            *(t[end] - t["threshold"] for end in ("lift", "ci_low", "ci_high"))
        ),
    ),
    Condition(
        "matched control tokens",
        lambda t: (t["second_lift"] >= SECOND * t["threshold"]) & (t["second_low"] > 0),
        lambda r: (
            f"over {r['second']} {_lift(r, 'second_lift', 'second')}, needs "
            f"{SECOND * r['threshold']:g}"
        ),
        lambda t: t.has("second_lift"),
        means="the same over control tokens of another kind",
    ),
    Condition(
        "moved",
        lambda t: (t["moved"] >= t["threshold"]) & (t["moved_low"] > 0),
        lambda r: (
            f"without its own position {_lift(r, 'moved', 'moved')}, needs {r['threshold']:g}"
        ),
        lambda t: t.has("moved"),
        means="the same without the effect through the query's own position, which holds earlier "
        "layers' predictions",
    ),
    Condition(
        "stands out",
        lambda t: t["lift"] >= STANDS_OUT * t["spread"],
        lambda r: (
            f"{abs(r['lift'] / r['spread']):.1f} × the spread of its effects over the text's "
            f"tokens, needs {STANDS_OUT:g}"
        ),
        lambda t: t.has("spread"),
        means="the lift against the head's effect on any token of the text",
    ),
)


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """For each row of `with_thresholds`, a column per condition: True if it fails."""
    numbers = Numbers(table)
    return pd.DataFrame({c.name: c.fails(numbers) for c in CONDITIONS}, index=table.index)


def failing(row: Row) -> list[Condition]:
    """The conditions that a row of `with_thresholds` fails."""
    numbers = Numbers(row)
    return [condition for condition in CONDITIONS if condition.fails(numbers)[0]]


def inconclusive(table: pd.DataFrame, failed: pd.DataFrame) -> _Truth:
    """Rows where the interval of every failed condition includes its threshold."""
    numbers = Numbers(table)
    rows: _Truth = np.ones(len(table), bool)
    for condition in CONDITIONS:
        margin = condition.margin
        within = False if margin is None else margin(numbers).high >= 0
        if condition.name == HARD_QUERIES:
            within = within | is_open(numbers)
        rows &= ~failed[condition.name].to_numpy() | within
    return rows
