"""Conditions that a tag asks for: one is a row, so that tags and near misses can say why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.statistics.columns import MATCHED_ERROR, RULE_LOW
from headscope.statistics.wording import rule_in_words

MAX_Q = 0.01
MAX_P = 0.025
"""Level of the test at contested queries: that of the lower end of a 95 % interval. With eight
blocks of documents, the fewest of an interval, p can be as small as 0.004."""
TIMES_CONTROL = 1.5
"""Least mass in units of the control. A lift can be sure and still be small: a head that puts
0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a head
for prepositions."""
SECOND = 0.5
"""Least share of the floor that a head's effect must have over the second control, too."""
_ROUNDING = 1e-9
Z_95 = 1.959964
"""Standard deviations from the mean that 95 % of a normal distribution are within."""
STANDS_OUT = 0.5
"""Least lift of an effect in units of the standard deviation of a head's effects over the tokens of
the text. A head that writes much raises whatever it looks at by chance: with random V and O the
lift's mean over a hundred tokens is some tenths of it, and of either sign."""
QUERIES, UNDECIDED = "queries", "contested queries"
"""The conditions that say nothing of the head: its text holds too few queries, or none that
could tell the relation from a simple rule."""

Row = Mapping[str, Any]
"""A row of `headscope.statistics.tags.with_rules` by its columns' names. Of effects, whose rule has
a `sign`, numbers count upwards in the direction that is asked for."""
_Number = Float[ndarray, " row"]
_Truth = Bool[ndarray, " row"]


class Numbers:
    """Rows of `headscope.statistics.tags.with_rules`, each column as an array of floats.

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


def _above(threshold: _Number | float, *numbers: _Number) -> Margin:
    """A number and the ends of its interval, each less the threshold."""
    return Margin(*(number - threshold for number in numbers))


@dataclass(frozen=True)
class Condition:
    """One thing that a tag asks for. `holds` is vectorised over rows, `say` speaks of one row."""

    name: str
    holds: Callable[[Numbers], _Truth]
    say: Callable[[Row], str]
    applies: Callable[[Numbers], _Truth] | None = None
    """Rows that it applies to; all when None."""
    means: str = ""
    """Explanation in a few words, for a reader who sees it the first time."""
    margin: Callable[[Numbers], Margin] | None = None
    """Distance of the number above its threshold; None if that has no interval."""
    says_interval: bool = False
    """True if `say` gives the interval of the margin."""

    def account(self, row: Row, margins: Margin | None = None, i: int = 0) -> str:
        """Sentence of `say` for a row that fails, with its margin and an interval if there is one.

        Args:
            row: of `with_rules`.
            margins: of the table that the row stands in; of the row alone when None.
            i: the row's place in that table.

        >>> row = {"mass": 0.265, "floor": 0.267, "mass_error": 0.02}
        >>> CONDITIONS[1].account(row)
        'mass 0.265, floor 0.267, margin -0.002 [-0.022, +0.018]'
        """
        if self.margin is None or self.says_interval:
            return self.say(row)
        margins = self.margin(Numbers(row)) if margins is None else margins
        value, low, high = (float(end[i]) for end in margins)
        margin = "" if isnan(low) else f", margin {value:+.3f} [{low:+.3f}, {high:+.3f}]"
        return self.say(row) + margin

    def fails(self, numbers: Numbers) -> _Truth:
        """Rows where it is asked and does not hold."""
        failed = ~self.holds(numbers)
        return failed if self.applies is None else failed & self.applies(numbers)

    def is_asked(self, row: Row) -> bool:
        """True if it applies to a row."""
        return self.applies is None or bool(self.applies(Numbers(row))[0])


def _of_attention(numbers: Numbers) -> _Truth:
    return ~numbers.has("sign")


def _decides(numbers: Numbers) -> _Truth:
    """Rows with contested queries in enough blocks for the test to say anything."""
    return numbers.has("contested_low") & (numbers["contested_least_p"] < MAX_P)


def _reachable(numbers: Numbers) -> _Truth:
    """Rows whose bound of hits at contested queries a head that is always right exceeds.

    Its hit rate must be the margin above the rule's, and the rule's below Wilson's interval.
    """
    rule, queries = numbers["contested_rule_rate"], numbers["contested_n"]
    is_close = rule + numbers["beat_baseline_by"] > 1 + _ROUNDING
    reachable: _Truth = ~is_close & ~(rule >= queries / (queries + Z_95**2))
    return reachable


def _few_contested(numbers: Numbers) -> _Truth:
    """Rows whose contested queries do not decide, or are so few that they may be of one kind.

    "Previous word, or the same word" is right at most of the last words of "as well as".
    """
    return ~_contested(numbers) | (numbers["contested_n"] < numbers["fewest"])


def _hits_over_rules(numbers: Numbers) -> Margin:
    """Hits at contested queries over those of simple rules and the margin.

    At its upper end with the rules that the head's noise over all queries leaves: a rule is one to
    beat or none by a hair.
    """
    rate, low, high = (numbers[f"contested_hit_{end}"] for end in ("rate", "low", "high"))
    rule, margin = numbers["contested_rule_rate"], numbers["beat_baseline_by"]
    return Margin(rate - rule - margin, low - rule - margin, high - numbers[RULE_LOW] - margin)


def _offset_bound(numbers: Numbers) -> _Number:
    bound: _Number = numbers["best_offset_rate"] + numbers["beat_baseline_by"]
    return bound


def _contested(numbers: Numbers) -> _Truth:
    """Rows where a simple rule is to be beaten, and the text holds enough queries to tell."""
    contested: _Truth = numbers.has("beat_baseline_by") & _decides(numbers)
    return contested


def _interval(low: float, high: float) -> str:
    return "(no interval: too few documents)" if isnan(low) else f"[{low:.3f}, {high:.3f}]"


def _q_value(q: float) -> str:
    return "not known (too few documents)" if isnan(q) else f"{q:.2g}"


def _lift(row: Row, lift: str, ends: str) -> str:
    return f"{row[lift]:+.2f} [{row[f'{ends}_low']:+.2f}, {row[f'{ends}_high']:+.2f}]"


def _hit_interval(row: Row) -> str:
    low, high = row["contested_hit_low"], row["contested_hit_high"]
    return "" if isnan(low) else f" [{low:.3f}, {high:.3f}]"


def _rule_by_a_hair(row: Row) -> str:
    """A remark on the rule to beat, where the head may well be above it over all queries."""
    low = row[RULE_LOW]
    if low >= row["contested_rule_rate"]:
        return ""
    return f" ({low:.3f} if it is right at {row['hit_error']:.1%} more of all queries, its noise)"


def open_in_words(row: Row) -> str:
    """Why a text cannot tell a relation from simple rules, of a row where it cannot."""
    contested = _contested_queries(row)
    if isnan(row["contested_least_p"]) or isnan(row["contested_low"]):
        return f"{contested} lie in too few documents to tell them apart"
    if row["contested_least_p"] >= MAX_P:
        return (
            f"{contested} lie in so few documents that p cannot fall below "
            f"{row['contested_least_p']:.2g}, needs {MAX_P:g} to tell them apart"
        )
    return (
        f"of {contested} another rule has {row['contested_rule_rate']:.0%} right: no head could be "
        "told apart"
    )


def _decided_in_words(row: Row) -> str:
    numbers = Numbers(row)
    if not (_decides(numbers) & _reachable(numbers))[0]:
        return open_in_words(row)
    return f"{_contested_queries(row)} lie in enough documents to tell them apart"


def _contested_queries(row: Row) -> str:
    rule = rule_in_words(row["baseline"])
    return f"{row['contested_n']:.0f} contested queries, where “{rule}” is wrong,"


BESIDE_LIFT = ("second control tokens", "moved", "stands out")
"""Conditions that stand behind an effect's lift where it is told in a sentence."""
_HITS = "hit rate: how often its largest attention is on a target"

CONDITIONS = (
    Condition(
        QUERIES,
        lambda t: (t["taggable"] > 0) & (t["n"] >= t["fewest"]),
        lambda r: (
            f"{r['n']} queries, needs {r['fewest']}"
            if r["taggable"]
            else "this relation is reported and never gives a tag"
        ),
        means="the tokens at which the relation asks where the head looks",
    ),
    Condition(
        "mass",
        lambda t: t["mass"] >= t["floor"],
        lambda r: f"mass {r['mass']:.3f}, floor {r['floor']:g}",
        _of_attention,
        means="the share of its attention on what is asked for; the floor is the least for a tag",
        margin=lambda t: _within(t["mass"] - t["floor"], t["mass_error"]),
    ),
    Condition(
        "interval",
        lambda t: t["ci_low"] > 0,
        lambda r: f"lift {r['lift']:.3f} {_interval(r['ci_low'], r['ci_high'])}, must lie above 0",
        means="lift is mass − control; in brackets its 95 % interval, a bootstrap over documents",
        margin=lambda t: _above(0.0, t["lift"], t["ci_low"], t["ci_high"]),
        says_interval=True,
    ),
    Condition(
        "q value",
        lambda t: t["q_value"] < MAX_Q,
        lambda r: f"q {_q_value(r['q_value'])}, must be below {MAX_Q:g}",
        means="the false discovery rate, over all heads and relations of the run",
        margin=lambda t: _above(0.0, t["lift"], t["ci_low"], t["ci_high"]),
        says_interval=True,
    ),
    Condition(
        "control",
        lambda t: t["mass"] >= TIMES_CONTROL * t["control"],
        lambda r: f"mass {r['mass']:.3f}, {TIMES_CONTROL:g} × control {r['control']:.3f}",
        _of_attention,
        means=f"the mass must be at least {TIMES_CONTROL:g} times the control",
        margin=lambda t: _within(t["mass"] - TIMES_CONTROL * t["control"], t["control_error"]),
    ),
    Condition(
        "second control",
        lambda t: t["mass"] >= TIMES_CONTROL * t["matched"],
        lambda r: f"mass {r['mass']:.3f}, {TIMES_CONTROL:g} × second control {r['matched']:.3f}",
        lambda t: t.has("matched"),
        means="the matched control: in syntax, mass on words of the same class at the same "
        "distance from other queries",
        margin=lambda t: _within(t["mass"] - TIMES_CONTROL * t["matched"], t["mass_error"]),
    ),
    Condition(
        "second lift",
        lambda t: t["mass"] - t["matched"] > t[MATCHED_ERROR],
        lambda r: (
            f"lift over the second control {r['mass'] - r['matched']:.3f} ± {r[MATCHED_ERROR]:.3f},"
            " must lie above 0"
        ),
        lambda t: t.has(MATCHED_ERROR),
        means="mass − second control, with half its 95 % interval over documents",
        margin=lambda t: _within(t["mass"] - t["matched"], t[MATCHED_ERROR]),
        says_interval=True,
    ),
    Condition(
        "chance",
        lambda t: t["mass"] >= t["times_chance"] * t["chance"],
        lambda r: f"mass {r['mass']:.3f}, {r['times_chance']:g} × chance {r['chance']:.3f}",
        lambda t: t.has("times_chance"),
        means="the mass must be several times what evenly spread attention has",
        margin=lambda t: _within(t["mass"] - t["times_chance"] * t["chance"], t["mass_error"]),
    ),
    Condition(
        "companion",
        lambda t: t["companion_mass"] >= t["floor"],
        lambda r: f"mass {r['companion_mass']:.3f} for {r['companion']}, floor {r['floor']:g}",
        lambda t: t.has("companion_mass"),
        means="a second relation whose mass must reach the floor too: a positional head looks the "
        "same distance back in random tokens as in text",
        margin=lambda t: _within(t["companion_mass"] - t["floor"], t["companion_error"]),
    ),
    Condition(
        "twin",
        lambda t: t["lift"] > t["twin_p999"],
        lambda r: f"lift {r['lift']:.3f}, shuffled twin's 99.9th percentile {r['twin_p999']:.3f}",
        lambda t: t.has("twin_p999"),
        means="a null model: the same model with its attention weights shuffled; the lift must be "
        "above 99.9 % of its lifts",
        margin=lambda t: _above(t["twin_p999"], t["lift"], t["ci_low"], t["ci_high"]),
    ),
    Condition(
        "best offset",
        lambda t: ~(t["hit_rate"] < _offset_bound(t)),
        lambda r: (
            f"hit rate {r['hit_rate']:.3f}, best fixed distance {r['best_offset_rate']:.3f} "
            f"+ {r['beat_baseline_by']:.2f}"
        ),
        lambda t: t.has("beat_baseline_by") & _few_contested(t) & (_offset_bound(t) <= 1),
        means=f"the best rule that always looks the same distance back; {_HITS}",
        margin=lambda t: _within(t["hit_rate"] - _offset_bound(t), t["hit_error"]),
    ),
    Condition(
        "contested lift",
        lambda t: t["contested_low"] > 0,
        lambda r: (
            f"where “{rule_in_words(r['baseline'])}” is wrong, lift "
            f"{r['contested_lift']:.3f} over what it picks "
            f"{_interval(r['contested_low'], r['contested_high'])}, must lie above 0"
        ),
        _contested,
        "contested queries are those where the best simple rule is wrong",
        margin=lambda t: _above(0.0, t["contested_lift"], t["contested_low"], t["contested_high"]),
        says_interval=True,
    ),
    Condition(
        "contested p value",
        lambda t: t["contested_p"] < MAX_P,
        lambda r: f"there p {_q_value(r['contested_p'])}, must be below {MAX_P:g}",
        lambda t: _contested(t) & t.has("contested_p"),
        "sign-flip test: with the lift's sign drawn at random in each document, the share of draws "
        "that are as large",
        margin=lambda t: _above(0.0, t["contested_lift"], t["contested_low"], t["contested_high"]),
        says_interval=True,
    ),
    Condition(
        "contested mass",
        lambda t: t["contested_mass"] >= TIMES_CONTROL * t["rival"],
        lambda r: (
            f"there mass {r['contested_mass']:.3f}, {TIMES_CONTROL:g} × what the rule picks "
            f"{r['rival']:.3f}"
        ),
        _contested,
        "the mass on the targets at contested queries, against that on what the rule picks",
        margin=lambda t: _within(
            t["contested_mass"] - TIMES_CONTROL * t["rival"], t["contested_error"]
        ),
    ),
    Condition(
        "contested hits",
        lambda t: (
            ~(t["contested_hit_rate"] < t["contested_rule_rate"] + t["beat_baseline_by"])
            & ~(t["contested_hit_low"] <= t["contested_rule_rate"])
        ),
        lambda r: (
            f"there hit rate {r['contested_hit_rate']:.3f}{_hit_interval(r)}, any simple rule "
            f"{r['contested_rule_rate']:.3f} + {r['beat_baseline_by']:.2f}{_rule_by_a_hair(r)}"
        ),
        lambda t: _contested(t) & _reachable(t),
        f"{_HITS}; a simple rule may lie neither within the margin nor within the interval",
        margin=_hits_over_rules,
    ),
    Condition(
        UNDECIDED,
        lambda t: _decides(t) & _reachable(t),
        _decided_in_words,
        lambda t: t.has("beat_baseline_by") & t.has("contested_n"),
        means="the test needs them in enough documents, and no other simple rule may be right at "
        "them",
    ),
    Condition(
        "shadow",
        lambda t: t["beyond_shadow_low"] > 0,
        lambda r: (
            f"its shadow has mass {r['shadow_mass']:.3f} and hit rate {r['shadow_hit_rate']:.3f}; "
            f"where that is wrong, lift {r['beyond_shadow']:.3f} over what it picks "
            f"{_interval(r['beyond_shadow_low'], r['beyond_shadow_high'])}, must lie above 0"
        ),
        lambda t: t.has("beyond_shadow_low"),
        "a surrogate of the head that sees only parts of speech, word forms, distance, order and "
        "repeated tokens, fitted on other documents",
        margin=lambda t: _above(0.0, *(t[f"beyond_shadow{end}"] for end in ("", "_low", "_high"))),
        says_interval=True,
    ),
    Condition(
        "effect",
        lambda t: t["lift"] >= t["floor"],
        lambda r: f"lift {r['lift']:+.2f}, floor {r['floor']:g}",
        lambda t: t.has("sign"),
        means="what the head adds to the logits of the tokens in question, less what it adds to "
        "those of control tokens",
        margin=lambda t: _above(t["floor"], t["lift"], t["ci_low"], t["ci_high"]),
    ),
    Condition(
        "second control tokens",
        lambda t: (t["second_lift"] >= SECOND * t["floor"]) & (t["second_low"] > 0),
        lambda r: (
            f"over {r['second']} {_lift(r, 'second_lift', 'second')}, needs {SECOND * r['floor']:g}"
        ),
        lambda t: t.has("second_lift"),
        means="the same over control tokens of another kind",
    ),
    Condition(
        "moved",
        lambda t: (t["moved"] >= t["floor"]) & (t["moved_low"] > 0),
        lambda r: f"without its own position {_lift(r, 'moved', 'moved')}, needs {r['floor']:g}",
        lambda t: t.has("moved"),
        means="the same without what the head reads at the query's own position, where earlier "
        "layers' predictions stand",
    ),
    Condition(
        "stands out",
        lambda t: t["lift"] >= STANDS_OUT * t["spread"],
        lambda r: (
            f"{abs(r['lift'] / r['spread']):.1f} × the spread of its effects over the text's "
            f"tokens, needs {STANDS_OUT:g}"
        ),
        lambda t: t.has("spread"),
        means="the lift against what the head writes on any token of the text",
    ),
)


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """For each row of `with_rules`, a column per condition: True if it fails."""
    numbers = Numbers(table)
    return pd.DataFrame({c.name: c.fails(numbers) for c in CONDITIONS}, index=table.index)


def failing(row: Row) -> list[Condition]:
    """The conditions that a row of `with_rules` fails."""
    numbers = Numbers(row)
    return [condition for condition in CONDITIONS if condition.fails(numbers)[0]]


def narrow(table: pd.DataFrame, failed: pd.DataFrame) -> _Truth:
    """Rows where the intervals of the margins hold 0 of all failing conditions but `UNDECIDED`."""
    numbers = Numbers(table)
    open_rows: _Truth = ~failed[QUERIES].to_numpy()
    for condition in CONDITIONS:
        if condition.name != UNDECIDED:
            margin = condition.margin
            holds_0 = False if margin is None else margin(numbers).high >= 0
            open_rows &= ~failed[condition.name].to_numpy() | holds_0
    return open_rows
