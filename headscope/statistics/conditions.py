"""Conditions that a tag asks for: one is a row, so that tags and near misses can say why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any

import pandas as pd

from headscope.statistics.heuristic_words import rule_in_words

MAX_Q = 0.01
TIMES_CONTROL = 1.5
"""Least mass in units of the control. A lift can be sure and still be small: a head that puts
0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a head
for prepositions."""
SECOND = 0.5
"""Least share of the floor that a head's effect must have over the second control, too."""
STANDS_OUT = 0.5
"""Least lift of an effect in units of the standard deviation of a head's effects over the tokens of
the text. A head that writes much raises whatever it looks at by chance: with random V and O the
lift's mean over a hundred tokens is some tenths of it, and of either sign."""
QUERIES, UNDECIDED = "queries", "contested queries"
"""The conditions that say nothing of the head: its text holds too few queries, or too few that
could tell the relation from a simple rule."""

Row = Mapping[str, Any]
"""A row of `headscope.statistics.tags.with_rules` by its columns' names. Of effects, whose rule has
a `sign`, numbers count upwards in the direction that is asked for."""


@dataclass(frozen=True)
class Condition:
    """One thing that a tag asks for. `holds` is vectorised over rows, `say` speaks of one row."""

    name: str
    holds: Callable[[pd.DataFrame], pd.Series]
    say: Callable[[Row], str]
    applies: Callable[[pd.DataFrame], pd.Series] | None = None
    """Where it is asked at all; everywhere when None."""
    means: str = ""
    """What it asks, in a few words for who reads it the first time."""

    def fails(self, table: pd.DataFrame) -> pd.Series:
        """Rows where it is asked and does not hold."""
        failed = ~self.holds(table).astype(bool)
        return failed if self.applies is None else failed & self.applies(table).astype(bool)

    def is_asked(self, row: Row) -> bool:
        """True where it is asked of a row."""
        return self.applies is None or bool(self.applies(pd.DataFrame([row])).iloc[0])


def _of_attention(table: pd.DataFrame) -> pd.Series:
    return table["sign"].isna()


def _contested(table: pd.DataFrame) -> pd.Series:
    """Rows where a simple rule is to be beaten, and the text holds enough queries to tell."""
    return table["beat_baseline_by"].notna() & (table["contested_n"] >= table["fewest"])


def _interval(low: float, high: float) -> str:
    return "(no interval: too few documents)" if isnan(low) else f"[{low:.3f}, {high:.3f}]"


def _q_value(q: float) -> str:
    return "not known (too few documents)" if isnan(q) else f"{q:.2g}"


def _lift(row: Row, lift: str, ends: str) -> str:
    return f"{row[lift]:+.2f} [{row[f'{ends}_low']:+.2f}, {row[f'{ends}_high']:+.2f}]"


BESIDE_LIFT = ("second control tokens", "moved", "stands out")
"""Conditions that stand behind an effect's lift where it is told in a sentence."""
_NOT_MOVED = {"logits": "without its own position", "nats": "read at that name"}
_HITS = "hit rate is how often its largest attention is right"

CONDITIONS = (
    Condition(
        QUERIES,
        lambda t: t["taggable"] & (t["n"] >= t["fewest"]),
        lambda r: (
            f"{r['n']} queries, needs {r['fewest']}"
            if r["taggable"]
            else "this relation is reported and never gives a tag"
        ),
        means="the tokens at which it is asked",
    ),
    Condition(
        "mass",
        lambda t: t["mass"] >= t["floor"],
        lambda r: f"mass {r['mass']:.3f}, floor {r['floor']:g}",
        _of_attention,
        means="the share of its attention on what is asked for; the floor is the least for a tag",
    ),
    Condition(
        "interval",
        lambda t: t["ci_low"] > 0,
        lambda r: f"lift {r['lift']:.3f} {_interval(r['ci_low'], r['ci_high'])}, must lie above 0",
        means="lift is mass less control; in brackets its 95 % interval, documents drawn anew",
    ),
    Condition(
        "q value",
        lambda t: t["q_value"] < MAX_Q,
        lambda r: f"q {_q_value(r['q_value'])}, must be below {MAX_Q:g}",
        means="of all lifts as clear as this one, the share that would be chance",
    ),
    Condition(
        "control",
        lambda t: t["mass"] >= TIMES_CONTROL * t["control"],
        lambda r: f"mass {r['mass']:.3f}, {TIMES_CONTROL:g} × control {r['control']:.3f}",
        _of_attention,
        means=f"the mass must be {TIMES_CONTROL:g} times the control at least",
    ),
    Condition(
        "second control",
        lambda t: t["mass"] >= TIMES_CONTROL * t["matched"],
        lambda r: f"mass {r['mass']:.3f}, {TIMES_CONTROL:g} × control {r['matched']:.3f} elsewhere",
        lambda t: t["matched"].notna(),
        means="the same distance and class of word, from other queries",
    ),
    Condition(
        "chance",
        lambda t: t["mass"] >= t["times_chance"] * t["chance"],
        lambda r: f"mass {r['mass']:.3f}, {r['times_chance']:g} × chance {r['chance']:.3f}",
        lambda t: t["times_chance"].notna(),
        means="the mass must be several times what evenly spread attention has",
    ),
    Condition(
        "companion",
        lambda t: t["companion_mass"] >= t["floor"],
        lambda r: f"mass {r['companion_mass']:.3f} for {r['companion']}, floor {r['floor']:g}",
        lambda t: t["companion_mass"].notna(),
        means="another relation, whose mass must reach the floor too: a head of position looks "
        "there on random tokens as on text",
    ),
    Condition(
        "twin",
        lambda t: t["lift"] > t["twin_p999"],
        lambda r: f"lift {r['lift']:.3f}, shuffled twin's 99.9th percentile {r['twin_p999']:.3f}",
        lambda t: t["twin_p999"].notna(),
        means="the same model with shuffled attention weights, which has learned nothing; the lift "
        "must be above 99.9 % of its lifts",
    ),
    Condition(
        "best offset",
        lambda t: ~(t["hit_rate"] < t["best_offset_rate"] + t["beat_baseline_by"]),
        lambda r: (
            f"hit rate {r['hit_rate']:.3f}, best fixed distance {r['best_offset_rate']:.3f} "
            f"+ {r['beat_baseline_by']:.2f}"
        ),
        lambda t: t["beat_baseline_by"].notna() & ~_contested(t),
        means=f"the best rule that always looks the same distance back; {_HITS}",
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
        "contested are the queries where the simple rule that fits the text best is wrong",
    ),
    Condition(
        "contested mass",
        lambda t: t["contested_mass"] >= TIMES_CONTROL * t["rival"],
        lambda r: (
            f"there mass {r['contested_mass']:.3f}, {TIMES_CONTROL:g} × what the rule picks "
            f"{r['rival']:.3f}"
        ),
        _contested,
        "the mass at these queries, against that on what the rule picks",
    ),
    Condition(
        "contested hits",
        lambda t: ~(t["contested_hit_rate"] < t["contested_rule_rate"] + t["beat_baseline_by"]),
        lambda r: (
            f"there hit rate {r['contested_hit_rate']:.3f}, any simple rule "
            f"{r['contested_rule_rate']:.3f} + {r['beat_baseline_by']:.2f}"
        ),
        _contested,
        f"{_HITS}; no simple rule may come close",
    ),
    Condition(
        UNDECIDED,
        lambda t: t["contested_n"] >= t["fewest"],
        lambda r: (
            f"{r['contested_n']:.0f} queries where “{rule_in_words(r['baseline'])}” is wrong, "
            f"needs {r['fewest']} to tell them apart"
        ),
        lambda t: t["beat_baseline_by"].notna() & t["contested_n"].notna(),
        means="how many queries there are where the simple rule that fits the text best is wrong",
    ),
    Condition(
        "shadow",
        lambda t: t["beyond_shadow_low"] > 0,
        lambda r: (
            f"its shadow has mass {r['shadow_mass']:.3f} and hit rate {r['shadow_hit_rate']:.3f}; "
            f"where that is wrong, lift {r['beyond_shadow']:.3f} over what it picks "
            f"{_interval(r['beyond_shadow_low'], r['beyond_shadow_high'])}, must lie above 0"
        ),
        lambda t: t["beyond_shadow_low"].notna(),
        "a surrogate of the head that has parts of speech, forms, distance, order and copies "
        "alone, fitted on other documents",
    ),
    Condition(
        "effect",
        lambda t: t["lift"] >= t["floor"],
        lambda r: f"lift {r['lift']:+.2f}, floor {r['floor']:g}",
        lambda t: t["sign"].notna(),
        means="what it writes on the tokens asked about, beyond what it writes on control tokens",
    ),
    Condition(
        "second control tokens",
        lambda t: (t["second_lift"] >= SECOND * t["floor"]) & (t["second_low"] > 0),
        lambda r: (
            f"over {r['second']} {_lift(r, 'second_lift', 'second')}, needs {SECOND * r['floor']:g}"
        ),
        lambda t: t["second_lift"].notna(),
        means="the same over control tokens of another kind",
    ),
    Condition(
        "moved",
        lambda t: (t["moved"] >= t["floor"]) & (t["moved_low"] > 0),
        lambda r: f"{_NOT_MOVED[r['unit']]} {_lift(r, 'moved', 'moved')}, needs {r['floor']:g}",
        lambda t: t["moved"].notna(),
        means="what it reads at the query's own position, where earlier layers' predictions stand, "
        "is left out",
    ),
    Condition(
        "stands out",
        lambda t: t["lift"] >= STANDS_OUT * t["spread"],
        lambda r: (
            f"{abs(r['lift'] / r['spread']):.1f} × the spread of its effects over the text's "
            f"tokens, needs {STANDS_OUT:g}"
        ),
        lambda t: t["spread"].notna(),
        means="the lift against what the head writes on any token of the text",
    ),
)


def failures(table: pd.DataFrame) -> pd.DataFrame:
    """For each row of `with_rules`, a column per condition: True where it fails."""
    return pd.DataFrame({c.name: c.fails(table) for c in CONDITIONS})
