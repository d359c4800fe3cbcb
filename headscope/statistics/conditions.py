"""Conditions of a tag, a row each, which also word the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.measure.tally import MIN_BLOCKS
from headscope.relations import head_types
from headscope.relations.baselines import baseline_in_words
from headscope.relations.hard_queries import LEAST_ATTENTION
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.ratio import Z_95

MAX_Q = 0.01
TIMES_CONTROL = 1.5
"""Least mass in units of the strictest control. A lift can be certain and still be small: a head
that puts 0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a
head for prepositions."""
MIN_HARD = 10
"""Fewest hard queries that can decide a relation."""
FEWEST_WRONG = 5
"""Fewest queries where the surrogate is wrong that can tell a head from it."""
SECOND = 0.5
"""Least share of the threshold that a direct effect must have over the matched control, too."""
STANDS_OUT = 0.5
"""Least lift of an effect in units of the standard deviation of a head's effects over the tokens of
the text. A head with large effects raises whatever it attends to by chance: with random V and O the
lift's mean over a hundred tokens is some tenths of it, and of either sign."""
LEAST_TOP = 0.2
"""Least share of hard queries at which the target must have the most attention of all tokens but
sinks. Ours, as the share beyond the surrogate: a head that attends more to words which are no
candidates, such as "of", at more than four of five does not look for its target there."""
LEAST_REPLICATES = 0.5
"""Least probability of the tag on another text of this size: below it another text is more likely
not to give the tag."""
QUERIES, Q_VALUE, HARD_QUERIES = "queries", "q value", "hard queries"
ANOTHER_TEXT = "another text"
SURFACE = "surface features"
"""Words for what a head may follow that its surrogate, fitted on them, does as well."""

Row = Mapping[str, Any]
"""A row of `headscope.statistics.tags.with_thresholds` (evidence with its thresholds), by column.
The numbers of direct effects whose sign is −1 have changed signs."""
_Number = Float[ndarray, " row"]
_Truth = Bool[ndarray, " row"]


class Numbers:
    """Rows of evidence with thresholds, each column as an array of floats.

    >>> Numbers({"mass": 0.5, "beats": True})["beats"].tolist()
    [1.0]
    """

    def __init__(self, rows: pd.DataFrame | Row) -> None:
        self._rows = rows
        self._columns: dict[str, _Number] = {}

    def __getitem__(self, name: str) -> _Number:
        if name not in self._columns:
            values = np.asarray(self._rows[name], dtype=float)
            self._columns[name] = np.atleast_1d(values)
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
    return Margin(
        value=value,
        low=value - error,
        high=value + error,
    )


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
    tests_low: bool = False
    """True if the lower end of the interval must lie above the threshold."""
    states_interval: bool = False
    """True if `describe` states the interval of the margin."""
    is_open: Callable[[Numbers], _Truth] | None = None
    """Rows that the text cannot decide by it: they have no tag, and it rejects none of them."""

    def message(self, row: Row, margins: Margin | None = None, i: int = 0) -> str:
        """Description of a row that fails, with the margin and its interval if there is one.

        Args:
            row: row with thresholds.
            margins: margins of the whole table; those of the row alone if None.
            i: number of the row in that table.

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

    def fails(self, numbers: Numbers) -> _Truth:
        """Rows to which the condition applies and where it does not hold."""
        failed: _Truth = ~self.holds(numbers)
        if self.applies is not None:
            failed = failed & self.applies(numbers)
        return failed


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
    largest_low = queries / (queries + Z_95**2)
    is_reachable = _bound(numbers) < largest_low
    has_queries = queries >= MIN_HARD
    enough = has_queries & numbers.has("hard_low") & is_reachable
    open_rows: _Truth = _has_baseline(numbers) & ~enough
    return open_rows


def has_open_surrogate(numbers: Numbers) -> _Truth:
    """Rows whose surrogate is wrong at too few queries to tell the head from it.

    A surrogate that is right wherever the relation was judged explains all that the head does.
    """
    rows: _Truth = numbers["surrogate_wrong"] < FEWEST_WRONG
    return rows


def has_no_interval(numbers: Numbers) -> _Truth:
    """Rows whose queries lie in too few blocks of documents for an interval of the lift."""
    rows: _Truth = (numbers["taggable"] > 0) & ~numbers.has("ci_low")
    return rows


def _bound(numbers: Numbers) -> _Number:
    bound: _Number = numbers["hard_baseline_rate"] + numbers["beat_baseline_by"]
    return bound


def _strictest(numbers: Numbers) -> _Number:
    of_chance = numbers["times_chance"] * numbers["chance"] / TIMES_CONTROL
    controls = [numbers["control"], numbers["matched_control"], of_chance]
    return np.asarray(np.fmax.reduce(controls))


def _control_margin(numbers: Numbers) -> Margin:
    strictest = _strictest(numbers)
    is_control = strictest == numbers["control"]
    error = np.where(is_control, numbers["control_error"], numbers["mass_error"])
    above = numbers["mass"] - TIMES_CONTROL * strictest
    return _within(above, error)


def matched_control_keys(type: str) -> str:
    """Keys of the matched control of a head type's relations, in words.

    >>> matched_control_keys("syntactic")
    'keys of that class and distance from other words'
    """
    head_type = head_types().get(type)
    return "other keys" if head_type is None else head_type.matched_control_keys


def strictest_control(row: Row) -> tuple[float, str]:
    """The largest of a row's control masses, and its keys in words.

    A multiple of evenly spread attention is a control of relations that state `times_chance`.

    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": 0.34})
    (0.34, 'keys of that class and distance from other words (matched)')
    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": float("nan")})
    (0.01, 'control keys')
    >>> strictest_control({"type": "syntactic", "control": float("nan")})  # no finite attention
    (nan, 'control keys')
    """
    controls = [
        (row["control"], "control keys"),
        (row.get("matched_control"), f"{matched_control_keys(row['type'])} (matched)"),
    ]
    times_chance = row.get("times_chance", float("nan"))
    if not isnan(times_chance):
        multiple = times_chance / TIMES_CONTROL
        keys = f"the same keys by evenly spread attention, × {multiple:g}"
        mass = row["chance"] * times_chance / TIMES_CONTROL
        controls.append((mass, keys))
    known = []
    for mass, keys in controls:
        if mass is not None and not isnan(mass):
            known.append((mass, keys))
    return max(known, key=itemgetter(0), default=controls[0])


def _control_in_words(row: Row) -> str:
    control, keys = strictest_control(row)
    return f"mass {row['mass']:.3f}, {TIMES_CONTROL:g} × {control:.3f} on {keys}"


def _interval(low: float, high: float) -> str:
    return "(no interval: too few documents)" if isnan(low) else f"[{low:.3f}, {high:.3f}]"


def _lift(row: Row, lift: str, ends: str) -> str:
    low, high = row[f"{ends}_low"], row[f"{ends}_high"]
    return f"{row[lift]:+.2f} [{low:+.2f}, {high:+.2f}]"


def _hard_in_words(row: Row) -> str:
    if is_open(Numbers(row))[0]:
        return open_in_words(row)
    baseline = baseline_in_words(row["baseline"])
    interval = _interval(row["hard_low"], row["hard_high"])
    bound = f"{row['hard_baseline_rate']:.2f} + {row['beat_baseline_by']:.2f}"
    return (
        f"prefers the target at {row['hard_rate']:.2f} "
        f"{interval} of {row['hard_n']:.0f} queries where "
        f"“{baseline}” is wrong; baselines "
        f"{bound}"
    )


def open_in_words(row: Row) -> str:
    """Reason why the text cannot distinguish the relation of a row from baselines."""
    baseline = baseline_in_words(row["baseline"])
    hard = f"{row['hard_n']:.0f} hard queries, where “{baseline}” is wrong"
    if row["hard_n"] < MIN_HARD:
        return f"{hard}; needs {MIN_HARD}"
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
    if alternative(row) == SURFACE:
        return (
            f"its surrogate is wrong at {row['surrogate_wrong']:.0f} of the queries that were read "
            f"again; needs {FEWEST_WRONG}"
        )
    return open_in_words(row)


def alternative(row: Row) -> str:
    """The simpler explanation that a `not identifiable` row may have: a baseline, or `SURFACE`."""
    numbers = Numbers(row)
    is_of_surface = has_open_surrogate(numbers)[0] and not is_open(numbers)[0]
    return SURFACE if is_of_surface else str(row["baseline"])


BESIDE_LIFT = ("matched control tokens", "moved", "stands out")
"""Conditions that the sentence on a direct effect states after its lift."""


def _has_enough_queries(numbers: Numbers) -> _Truth:
    is_taggable = numbers["taggable"] > 0
    is_enough: _Truth = is_taggable & (numbers["n"] >= MIN_QUERIES)
    return is_enough


def _queries_in_words(row: Row) -> str:
    if not row["taggable"]:
        return "this relation is reported and never gives a tag"
    return f"{row['n']} queries, needs {MIN_QUERIES}"


def _mass_in_words(row: Row) -> str:
    return f"mass {row['mass']:.3f}, threshold {row['threshold']:g}"


def _mass_margin(numbers: Numbers) -> Margin:
    above = numbers["mass"] - numbers["threshold"]
    return _within(above, numbers["mass_error"])


def _is_significant(numbers: Numbers) -> _Truth:
    is_discovery = numbers["q_value"] < MAX_Q
    is_significant: _Truth = is_discovery & (numbers["lift"] > 0)
    return is_significant


def _significance_in_words(row: Row) -> str:
    q = row["q_value"]
    q_value = "not known (too few documents)" if isnan(q) else f"{q:.2g}"
    interval = _interval(row["ci_low"], row["ci_high"])
    lift = f"lift {row['lift']:.3f} {interval}"
    return f"q {q_value}, must be below {MAX_Q:g}; {lift}"


def _lift_margin(numbers: Numbers) -> Margin:
    return Margin(
        value=numbers["lift"],
        low=numbers["ci_low"],
        high=numbers["ci_high"],
    )


def _exceeds_control(numbers: Numbers) -> _Truth:
    required = TIMES_CONTROL * _strictest(numbers)
    exceeds: _Truth = numbers["mass"] >= required
    return exceeds


def _beats_baselines(numbers: Numbers) -> _Truth:
    is_above = numbers["hard_low"] > _bound(numbers)
    beats: _Truth = ~is_open(numbers) & is_above
    return beats


def _hard_margin(numbers: Numbers) -> Margin:
    bound = _bound(numbers)
    return Margin(
        value=numbers["hard_rate"] - bound,
        low=numbers["hard_low"] - bound,
        high=numbers["hard_high"] - bound,
    )


def _is_top_asked(numbers: Numbers) -> _Truth:
    is_known: _Truth = _has_baseline(numbers) & numbers.has("top_rate")
    return is_known


def _top_in_words(row: Row) -> str:
    interval = _interval(row["top_low"], row["top_high"])
    return (
        f"the target has the most attention of all tokens but sinks at {row['top_rate']:.2f} "
        f"{interval} of {row['hard_n']:.0f} hard queries, needs {LEAST_TOP:g}"
    )


def _top_margin(numbers: Numbers) -> Margin:
    return Margin(
        value=numbers["top_rate"] - LEAST_TOP,
        low=numbers["top_low"] - LEAST_TOP,
        high=numbers["top_high"] - LEAST_TOP,
    )


def _surrogate_in_words(row: Row) -> str:
    if has_open_surrogate(Numbers(row))[0]:
        return undecided_in_words(row)
    interval = _interval(row["beyond_low"], row["beyond_high"])
    return (
        f"prefers the target at {row['beyond_surrogate']:.2f} {interval} of "
        f"{row['surrogate_wrong']:.0f} queries where its surrogate is wrong, "
        f"needs {row['surrogate_share']:g}"
    )


def _surrogate_margin(numbers: Numbers) -> Margin:
    return Margin(
        value=numbers["beyond_surrogate"] - numbers["surrogate_share"],
        low=numbers["beyond_low"] - numbers["surrogate_share"],
        high=numbers["beyond_high"] - numbers["surrogate_share"],
    )


def _paired_in_words(row: Row) -> str:
    mass = f"mass {row['paired_mass']:.3f} for {row['paired_relation']}"
    return f"{mass}, threshold {row['threshold']:g}"


def _paired_margin(numbers: Numbers) -> Margin:
    above = numbers["paired_mass"] - numbers["threshold"]
    return _within(above, numbers["paired_error"])


def _effect_in_words(row: Row) -> str:
    return f"lift {row['lift']:+.2f}, threshold {row['threshold']:g}"


def _effect_margin(numbers: Numbers) -> Margin:
    threshold = numbers["threshold"]
    return Margin(
        value=numbers["lift"] - threshold,
        low=numbers["ci_low"] - threshold,
        high=numbers["ci_high"] - threshold,
    )


def _exceeds_matched_control(numbers: Numbers) -> _Truth:
    required = SECOND * numbers["threshold"]
    is_large = numbers["second_lift"] >= required
    exceeds: _Truth = is_large & (numbers["second_low"] > 0)
    return exceeds


def _matched_control_in_words(row: Row) -> str:
    lift = _lift(row, "second_lift", "second")
    required = SECOND * row["threshold"]
    return f"over {row['second']} {lift}, needs {required:g}"


def _is_moved(numbers: Numbers) -> _Truth:
    is_large = numbers["moved"] >= numbers["threshold"]
    is_moved: _Truth = is_large & (numbers["moved_low"] > 0)
    return is_moved


def _moved_in_words(row: Row) -> str:
    lift = _lift(row, "moved", "moved")
    return f"without its own position {lift}, needs {row['threshold']:g}"


def _stands_out(numbers: Numbers) -> _Truth:
    required = STANDS_OUT * numbers["spread"]
    is_large: _Truth = numbers["lift"] >= required
    return is_large


def _spread_in_words(row: Row) -> str:
    times = abs(row["lift"] / row["spread"])
    return f"{times:.1f} × the spread of its effects over the text's tokens, needs {STANDS_OUT:g}"


def _holds_here(numbers: Numbers) -> _Truth:
    """Rows that meet every condition of `ON_THIS_TEXT` and have a number in `replicates`."""
    rows = numbers.has("replicates")
    for condition in ON_THIS_TEXT:
        rows = rows & ~condition.fails(numbers)
    return rows


def _another_text_in_words(row: Row) -> str:
    return (
        f"another text of this size gives the tag with probability {row['replicates']:.2f}, "
        f"needs {LEAST_REPLICATES:g}"
    )


ON_THIS_TEXT = (
    Condition(
        name=QUERIES,
        holds=_has_enough_queries,
        describe=_queries_in_words,
        means="tokens at which attention is measured",
    ),
    Condition(
        name="mass",
        holds=lambda t: t["mass"] >= t["threshold"],
        describe=_mass_in_words,
        applies=_of_attention,
        means="mean attention of a query on its targets",
        margin=_mass_margin,
    ),
    Condition(
        name=Q_VALUE,
        holds=_is_significant,
        describe=_significance_in_words,
        means="false discovery rate over all heads and relations, for lift = mass − control > 0",
        margin=_lift_margin,
        states_interval=True,
    ),
    Condition(
        name="control",
        holds=_exceeds_control,
        describe=_control_in_words,
        applies=_of_attention,
        means=f"mass against {TIMES_CONTROL:g} times the strictest control",
        margin=_control_margin,
    ),
    Condition(
        name=HARD_QUERIES,
        holds=_beats_baselines,
        describe=_hard_in_words,
        applies=_has_baseline,
        means="share of hard queries at which the target has more attention than every other "
        f"candidate, and at least {LEAST_ATTENTION:g} unless every word is one, against that of "
        "the best mixture of baselines that is right as often at easy queries",
        margin=_hard_margin,
        tests_low=True,
        states_interval=True,
        is_open=is_open,
    ),
    Condition(
        name="most attention",
        holds=lambda t: t["top_rate"] >= LEAST_TOP,
        describe=_top_in_words,
        applies=_is_top_asked,
        means="share of hard queries at which the target has the most attention of all tokens but "
        "attention sinks",
        margin=_top_margin,
        states_interval=True,
    ),
    Condition(
        name="surrogate",
        holds=lambda t: t["beyond_surrogate"] >= t["surrogate_share"],
        describe=_surrogate_in_words,
        applies=lambda t: t.has("beyond_surrogate") | has_open_surrogate(t),
        means="a model of the head fitted on parts of speech, word forms, distance, order and "
        "repeated tokens of other documents",
        margin=_surrogate_margin,
        states_interval=True,
        is_open=has_open_surrogate,
    ),
    Condition(
        name="paired relation",
        holds=lambda t: t["paired_mass"] >= t["threshold"],
        describe=_paired_in_words,
        applies=lambda t: t.has("paired_mass"),
        means="a relation that must reach the threshold too: a positional head attends the same "
        "distance back in random tokens and in text",
        margin=_paired_margin,
    ),
    Condition(
        name="effect",
        holds=lambda t: t["lift"] >= t["threshold"],
        describe=_effect_in_words,
        applies=lambda t: t.has("sign"),
        means="direct effect on the logits of the tokens in question − that on control tokens",
        margin=_effect_margin,
    ),
    Condition(
        name="matched control tokens",
        holds=_exceeds_matched_control,
        describe=_matched_control_in_words,
        applies=lambda t: t.has("second_lift"),
        means="the same over control tokens of another kind",
    ),
    Condition(
        name="moved",
        holds=_is_moved,
        describe=_moved_in_words,
        applies=lambda t: t.has("moved"),
        means="the same without the effect through the query's own position, which holds earlier "
        "layers' predictions",
    ),
    Condition(
        name="stands out",
        holds=_stands_out,
        describe=_spread_in_words,
        applies=lambda t: t.has("spread"),
        means="the lift against the head's effect on any token of the text",
    ),
)
"""Conditions on the numbers of this text."""
CONDITIONS = (
    *ON_THIS_TEXT,
    Condition(
        name=ANOTHER_TEXT,
        holds=lambda t: t["replicates"] >= LEAST_REPLICATES,
        describe=_another_text_in_words,
        applies=_holds_here,
        means="probability that another text of this size meets the conditions above",
    ),
)
"""All conditions of a tag; `ANOTHER_TEXT` applies only to rows that meet all others."""


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """For each row with thresholds a column per condition: True if it fails."""
    numbers = Numbers(table)
    columns = {condition.name: condition.fails(numbers) for condition in CONDITIONS}
    return pd.DataFrame(columns, index=table.index)


def decided_failures(table: pd.DataFrame, failed: pd.DataFrame) -> pd.DataFrame:
    """The failures of each row that the text decides: of a condition that is not open there."""
    numbers = Numbers(table)
    decided = failed.copy()
    for condition in CONDITIONS:
        if condition.is_open is not None:
            decided[condition.name] &= ~condition.is_open(numbers)
    return decided


def inconclusive(table: pd.DataFrame, failed: pd.DataFrame) -> _Truth:
    """Rows where the interval of every failed condition includes its threshold."""
    numbers = Numbers(table)
    rows: _Truth = np.ones(len(table), bool)
    for condition in CONDITIONS:
        includes_threshold: _Truth = np.zeros(len(table), bool)
        if condition.margin is not None:
            includes_threshold = condition.margin(numbers).high >= 0
        if condition.is_open is not None:
            includes_threshold = includes_threshold | condition.is_open(numbers)
        # rows that meet all other conditions are not rejected
        if condition.name == ANOTHER_TEXT:
            includes_threshold = np.ones(len(table), bool)
        holds = ~failed[condition.name].to_numpy()
        rows &= holds | includes_threshold
    return rows
